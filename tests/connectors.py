"""Connectors that tests leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc import ConnectClient


def delete_connectors(client: ConnectClient) -> None:
    """Delete every connector: one that idles takes a tenth of a core from the tests that follow."""
    for name in client.connectors():
        client.delete(name)


HEARTBEATS = "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"


def heartbeats(bootstrap_servers: str) -> dict[str, str]:
    """The configuration of a connector that needs no database: MirrorMaker's heartbeats, one a second."""
    return {
        "connector.class": HEARTBEATS,
        "tasks.max": "1",
        "source.cluster.alias": "here",
        "target.cluster.alias": "there",
        "source.cluster.bootstrap.servers": bootstrap_servers,
        "target.cluster.bootstrap.servers": bootstrap_servers,
        "emit.heartbeats.interval.seconds": "1",
        "heartbeats.topic.replication.factor": "1",
    }
