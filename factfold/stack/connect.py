"""Kafka Connect with Debezium, one distributed worker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.connectors.postgres_connector import PostgresConnector
from cdc.connectors.secrets import file_of, revealed
from factfold.stack.artifacts import connect_plugins
from factfold.stack.kafka import MAX_MESSAGE_BYTES, java_command, properties_text
from factfold.stack.ports import LOOPBACK
from factfold.stack.processes import Launch, says_it_is_well
from factfold.stack.state import StackInfo

if TYPE_CHECKING:
    from cdc import Connector

_JSON = "org.apache.kafka.connect.json.JsonConverter"


def prepare(info: StackInfo) -> None:
    """Write the worker's configuration."""
    (info.folder / "connect.properties").write_text(properties_text(_properties(info)), "ascii")


def launch(info: StackInfo) -> Launch:
    """Say how to start the worker."""
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = java_command(info, server="connect", heap="768m", main=main)
    argv = [*command, str(info.folder / "connect.properties")]
    # In another zone an hour is missing from a `timestamp[]` each spring.
    return Launch(argv, cwd=info.folder, log=info.log("connect"), environment={"TZ": "UTC"})


def answers(info: StackInfo) -> bool:
    """Ask the worker's health; in its first seconds it answers 404 or 503, which is no."""
    return says_it_is_well(info.ports["connect"], "/health")


def common_properties() -> dict[str, object]:
    """Return what makes it the stack's worker, here and in docker/: everything but addresses and folders."""
    return {
        "group.id": "connect",
        **_topics(),
        **_security(),
        "key.converter": _JSON,
        "value.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "plugin.discovery": "service_load",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": 1000,
        # A worker that comes back after a kill gets its tasks at once, not after five minutes.
        "scheduled.rebalance.max.delay.ms": 0,
        # The transaction a killed task leaves open holds records of the offsets topic back, and a worker that starts
        # reads that topic to its end before it starts the task that would abort it: it stood still for the default of
        # 60 s. A transaction lasts as long as sending one poll's records, some milliseconds.
        "producer.transaction.timeout.ms": 10_000,
        "producer.max.request.size": MAX_MESSAGE_BYTES,
        "consumer.max.partition.fetch.bytes": MAX_MESSAGE_BYTES,
    }


def _properties(info: StackInfo) -> dict[str, object]:
    return {
        **common_properties(),
        "bootstrap.servers": info.bootstrap_servers,
        # The REST interface needs no password, therefore it listens on this machine only.
        "listeners": info.connect_url,
        "rest.advertised.host.name": LOOPBACK,
        "plugin.path": ",".join(map(str, connect_plugins())),
        "config.providers.file.param.allowed.paths": info.secrets_dir,
        # An exactly-once task that is starting waits for the thread that waits for its end: for the default 5 s.
        "task.shutdown.graceful.timeout.ms": 1000,
    }


def _topics() -> dict[str, object]:
    # Default partition counts are 25 and 5; one worker needs few, and every one is a log to open.
    return {
        "config.storage.topic": "_connect_configs",
        "offset.storage.topic": "_connect_offsets",
        "status.storage.topic": "_connect_status",
        "config.storage.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "offset.storage.partitions": 4,
        "status.storage.partitions": 2,
    }


def _security() -> dict[str, object]:
    return {
        # Connectors may not change the worker's Kafka clients: by them a request could read files.
        "connector.client.config.override.policy": "None",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }


def in_stack(connector: Connector, info: StackInfo) -> Connector:
    """Return a connector to PostgreSQL with host, port and secrets folder of a stack, and another one as it is."""
    if not isinstance(connector, PostgresConnector):
        return connector
    password, secret = connector.password, file_of(revealed(connector.password))
    if secret is not None:
        password = f"${{file:{info.secrets_dir / secret[0].name}:{secret[1]}}}"
    return replace(connector, host=info.postgres.host, port=info.postgres.port, password=password)
