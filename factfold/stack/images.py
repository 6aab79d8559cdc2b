"""The files of docker/ that follow from the versions file and from the local stack's settings.

`python -m factfold.stack.images docker` writes them anew; a test compares them.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from factfold.stack import connect, ivy, kafka
from factfold.stack.versions import versions

# Inside the images: what the Dockerfile makes, and inside the network: names of the compose file.
_HOME = "/opt/factfold"
_BROKER = "kafka:19092"


def rendered() -> dict[str, str]:
    """Return every generated file by its path under docker/."""
    wanted = versions()
    servers = wanted.kafka_jars + wanted.plugins
    checksums = sorted(f"{wanted.sha256[one.filename]}  {one.filename}\n" for one in servers)
    return {
        ".env": _environment(),
        "kafka/ivy.xml": ivy.module_description(servers),
        "kafka/ivysettings.xml": ivy.settings(),
        "kafka/jars.sha256": "".join(checksums),
        "kafka/kafka.properties": kafka.properties_text(_kafka()),
        "kafka/connect.properties": kafka.properties_text(_connect()),
        "kafka/log4j2.xml": (files("factfold.stack") / "log4j2.xml").read_text("utf-8"),
    }


def write(folder: Path) -> None:
    """Write every generated file under `folder`."""
    for name, text in rendered().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def _environment() -> str:
    wanted = versions()
    return (
        "# Written by `python -m factfold.stack.images docker` from factfold/versions.toml; do not edit.\n"
        f"POSTGRES_VERSION={wanted.postgres}\n"
        f"KAFKA_VERSION={wanted.kafka}\n"
        f"DEBEZIUM_VERSION={wanted.debezium}\n"
        f"JAVA_PACKAGE={wanted.java_package}\n"
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


if __name__ == "__main__":
    write(Path(sys.argv[1]))
