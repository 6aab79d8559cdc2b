"""A Kafka broker that is its own controller."""

from __future__ import annotations

import base64
import shutil
import socket
import struct
import uuid
from importlib.resources import files
from pathlib import Path

from cdc.connectors.secrets import ascii_of
from factfold.stack.artifacts import kafka_jars
from factfold.stack.java import require_java, server_options
from factfold.stack.ports import LOOPBACK
from factfold.stack.processes import Launch, run_tool
from factfold.stack.state import StackInfo

# Broker, Connect's producers and consumers take messages this long: a row with its before image, both wide.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_API_VERSIONS = 18  # the one request every broker answers to anyone


def prepare(info: StackInfo) -> None:
    """Write the configuration, and format the log folder the first time."""
    _properties_file(info).write_text(properties_text(_properties(info)), "ascii")
    data = info.data("kafka")
    if (data / "meta.properties").exists():
        return
    shutil.rmtree(data, ignore_errors=True)
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    command = java_command(info, server="format", heap="128m", main="kafka.tools.StorageTool")
    arguments = ["format", f"--cluster-id={cluster}", f"--config={_properties_file(info)}"]
    failed, remedy = (
        "Kafka's log folder could not be formatted",
        "see the tool's words below. Free disk is the usual need",
    )
    run_tool([*command, *arguments], failed, remedy=remedy, place=data)


def launch(info: StackInfo) -> Launch:
    """Say how to start the broker."""
    command = java_command(info, server="kafka", heap="1g", main="kafka.Kafka")
    return Launch([*command, str(_properties_file(info))], cwd=info.folder, log=info.log("kafka"))


def answers(info: StackInfo) -> bool:
    """Send an ApiVersions request and look for its answer."""
    request = struct.pack(">hhih", _API_VERSIONS, 0, 7, -1)  # api, version, correlation id, no client id
    try:
        with socket.create_connection((LOOPBACK, info.ports["kafka"]), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            # length, correlation id, error code
            return connection.recv(10, socket.MSG_WAITALL)[4:] == struct.pack(">ih", 7, 0)
    except OSError:
        return False


def java_command(info: StackInfo, *, server: str, heap: str, main: str) -> list[str]:
    """Return the command line of one of Kafka's programs, its log settings included."""
    logging = info.folder / "log4j2.xml"
    logging.write_bytes((files("factfold.stack") / "log4j2.xml").read_bytes())
    return [
        *(str(require_java().executable), f"-Xmx{heap}", "-XX:+ExitOnOutOfMemoryError"),
        *server_options(),
        *("-Djava.awt.headless=true", "-Dfile.encoding=UTF-8", f"-Dfactfold.server={info.name}-{server}"),
        *(f"-Dlog4j2.configurationFile={logging}", "-cp", ":".join(map(str, kafka_jars())), main),
    ]


def common_properties() -> dict[str, object]:
    """Return what makes it the stack's broker, here and in docker/: everything but addresses and folders."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.listener.names": "CONTROLLER",
        "auto.create.topics.enable": "false",
        "num.partitions": 4,
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
        "group.initial.rebalance.delay.ms": 0,
        # One broker: one copy. And 4 partitions, not 50: each is a log to create at the first use.
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 4,
        # A worker of a share group learns its partitions at its second heartbeat. Kafka's default interval is 5 s.
        "group.share.min.heartbeat.interval.ms": 500,
        "group.share.heartbeat.interval.ms": 500,
    }


def properties_text(properties: dict[str, object]) -> str:
    """Write a Java properties file: Latin-1, anything else and the backslash escaped."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _properties(info: StackInfo) -> dict[str, object]:
    broker, controller = (f"{LOOPBACK}:{info.ports[name]}" for name in ("kafka", "controller"))
    return {
        **common_properties(),
        # A static voter list: the controller's port may change between two starts.
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{broker}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": info.data("kafka"),
    }


def _properties_file(info: StackInfo) -> Path:
    return info.folder / "kafka.properties"


def _escaped(value: object) -> str:
    return "".join(map(ascii_of, str(value).replace("\\", "\\\\")))
