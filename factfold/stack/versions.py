"""The versions file, typed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Coordinate:
    """One file of a Maven repository: `group:name:version[:classifier][@extension]`."""

    group: str
    name: str
    version: str
    classifier: str | None = None
    extension: str = "jar"

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Read the colon form; raises ValueError when it has fewer than three or more than four parts."""
        left, _, extension = text.partition("@")
        parts = left.split(":")
        if not 3 <= len(parts) <= 4:
            raise ValueError(f"not group:name:version[:classifier][@extension]: {text!r}")
        classifier = parts[3] if len(parts) == 4 else None
        return cls(parts[0], parts[1], parts[2], classifier, extension or "jar")

    @property
    def filename(self) -> str:
        """`name-version[-classifier].extension`, the repository's own file name."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.extension}"


@dataclass(frozen=True)
class Versions:
    """What the stack is made of."""

    java_minimum: int
    java_package: str
    postgres: str
    postgres_wheel: str
    postgres_wheel_version: str
    kafka: str
    debezium: str
    registry: str
    spark: str
    kafka_jars: tuple[Coordinate, ...]
    plugins: tuple[Coordinate, ...]
    registry_archive: Coordinate
    converter_jars: tuple[Coordinate, ...]
    spark_jars: tuple[Coordinate, ...]
    delta_jars: tuple[Coordinate, ...]
    sha256: dict[str, str]

    @property
    def artifacts(self) -> tuple[Coordinate, ...]:
        """Every file that every stack fetches, servers first."""
        return self.kafka_jars + self.plugins + self.converter_jars + self.spark_jars


@cache
def versions() -> Versions:
    """Read `versions.toml` and `jars.sha256` from the package."""
    folder = files("factfold")
    read: dict[str, Any] = tomllib.loads((folder / "versions.toml").read_text("utf-8"))
    java, postgres, kafka = read["java"], read["postgres"], read["kafka"]
    debezium, registry, spark = read["debezium"], read["registry"], read["spark"]
    return Versions(
        java_minimum=java["minimum"],
        java_package=java["debian_package"],
        postgres=postgres["version"],
        postgres_wheel=postgres["wheel"],
        postgres_wheel_version=postgres["wheel_version"],
        kafka=kafka["version"],
        debezium=debezium["version"],
        registry=registry["version"],
        spark=spark["version"],
        kafka_jars=_coordinates(kafka["jars"]),
        plugins=_coordinates(debezium["plugins"]),
        registry_archive=Coordinate.parse(registry["archive"]),
        converter_jars=_coordinates(registry["converter"]),
        spark_jars=_coordinates(spark["jars"]),
        delta_jars=_coordinates(read["delta"]["jars"]),
        sha256=_checksums((folder / "jars.sha256").read_text("utf-8")),
    )


def _coordinates(texts: list[str]) -> tuple[Coordinate, ...]:
    return tuple(Coordinate.parse(text) for text in texts)


def _checksums(text: str) -> dict[str, str]:
    pairs = (line.split() for line in text.splitlines() if line.strip())
    return {name: digest for digest, name in pairs}
