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
    """What the stack is made of: each setting of each table of `versions.toml`, and the checksums of the files."""

    java_minimum: int
    java_package: str
    postgres: str
    postgres_wheel: str
    postgres_wheel_version: str
    kafka: str
    kafka_scala: str
    kafka_jars: tuple[Coordinate, ...]
    debezium: str
    debezium_plugins: tuple[Coordinate, ...]
    registry: str
    registry_archive: tuple[Coordinate, ...]
    registry_converter: tuple[Coordinate, ...]
    spark: str
    spark_jars: tuple[Coordinate, ...]
    delta: str
    delta_jars: tuple[Coordinate, ...]
    sha256: dict[str, str]

    @property
    def artifacts(self) -> tuple[Coordinate, ...]:
        """Every file that every stack fetches, servers first."""
        return self.kafka_jars + self.debezium_plugins + self.registry_converter + self.spark_jars


@cache
def versions() -> Versions:
    """Read `versions.toml` and `jars.sha256` from the package."""
    folder = files("factfold")
    read = tomllib.loads((folder / "versions.toml").read_text("utf-8"))
    settings: dict[str, Any] = {
        table if name == "version" else f"{table}_{name}": value
        for table, values in read.items()
        for name, value in values.items()
    }
    for name, value in settings.items():
        if isinstance(value, list):
            settings[name] = tuple(map(Coordinate.parse, value))
    pairs = map(str.split, (folder / "jars.sha256").read_text("utf-8").splitlines())
    return Versions(**settings, sha256={pair[1]: pair[0] for pair in pairs if pair})
