"""The files of docker/ that follow from the versions file and from the local stack's settings.

`python -m docs.docker_files docker` writes them again. A test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from factfold.stack import artifacts, connect, kafka, registry
from factfold.stack.versions import Coordinate, versions

# Inside the images: what the Dockerfile makes, and inside the network: names of the compose file.
_HOME = "/opt/factfold"
_BROKER = "kafka:19092"


def rendered() -> dict[str, str]:
    """Return every generated file by its path under docker/."""
    pinned = versions()
    servers = pinned.kafka_jars + pinned.debezium_plugins
    return {
        ".env": _environment(),
        "kafka/ivy.xml": artifacts.module_description(servers),
        "kafka/ivysettings.xml": artifacts.IVY_SETTINGS,
        "kafka/jars.sha256": _checksums(servers),
        "kafka/kafka.properties": kafka.properties_text(_kafka()),
        "kafka/connect.properties": kafka.properties_text(_connect()),
        "kafka/log4j2.xml": (files("factfold.stack") / "log4j2.xml").read_text("utf-8"),
        "registry/ivy.xml": artifacts.module_description(pinned.registry_archive),
        "registry/ivysettings.xml": artifacts.IVY_SETTINGS,
        "registry/jars.sha256": _checksums(pinned.registry_archive),
        "registry/registry.properties": kafka.properties_text(_registry()),
    }


def write(folder: Path) -> None:
    """Write every generated file under `folder`."""
    for name, text in rendered().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def _checksums(coordinates: Sequence[Coordinate]) -> str:
    sha256 = versions().sha256
    return "".join(sorted(f"{sha256[one.filename]}  {one.filename}\n" for one in coordinates))


def _environment() -> str:
    pinned = versions()
    return (
        "# Written by `python -m docs.docker_files docker` from factfold/versions.toml; do not edit.\n"
        f"POSTGRES_VERSION={pinned.postgres}\n"
        f"KAFKA_VERSION={pinned.kafka}\n"
        f"DEBEZIUM_VERSION={pinned.debezium}\n"
        f"REGISTRY_VERSION={pinned.registry}\n"
        f"JAVA_PACKAGE={pinned.java_package}\n"
    )


def _kafka() -> dict[str, object]:
    return {
        **kafka.common_properties(),
        "controller.quorum.voters": "1@localhost:19093",
        # INSIDE is for the other containers, OUTSIDE for the host: compose.yaml publishes it on loopback.
        "listeners": "INSIDE://:19092,OUTSIDE://:9092,CONTROLLER://localhost:19093",
        "advertised.listeners": f"INSIDE://{_BROKER},OUTSIDE://127.0.0.1:9092",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "log.dirs": f"{_HOME}/data",
    }


def _connect() -> dict[str, object]:
    return {
        **connect.common_properties(),
        "bootstrap.servers": _BROKER,
        # Open inside the network only; compose.yaml publishes it on the host's loopback.
        "listeners": "http://:8083",
        "rest.advertised.host.name": "connect",
        "plugin.path": f"{_HOME}/plugins",
        "config.providers.file.param.allowed.paths": f"{_HOME}/secrets",
    }


def _registry() -> dict[str, object]:
    return {
        **registry.common_properties(),
        # Open inside the network only; compose.yaml publishes it on the host's loopback.
        "quarkus.http.host": "0.0.0.0",  # noqa: S104
        "quarkus.http.port": 8081,
        "apicurio.datasource.url": f"jdbc:h2:file:{_HOME}/data/registry",
    }


if __name__ == "__main__":
    write(Path(sys.argv[1]))
