"""Connectors that tests leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests

from cdc.connectors.base import OF_CONNECT, keys_of, kind_of, text_of

if TYPE_CHECKING:
    from cdc import ConnectClient


def delete_connectors(client: ConnectClient) -> None:
    """Delete every connector: one that idles takes a tenth of a core from the tests that follow."""
    for name in client.connectors():
        client.delete(name)


def rest(client: ConnectClient, method: str, path: str, **more: Any) -> Any:
    """The worker's own answer to what the client has no method for."""
    answer = requests.request(method, client.url + path, timeout=30, **more)
    answer.raise_for_status()
    return answer.json()


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


def require_shipped_list(client: ConnectClient, declared: Any) -> None:
    """The shipped list of a connector's settings is the one that its plug-in publishes on a worker."""
    keys = rest(client, "GET", f"/connector-plugins/{declared.JAVA_CLASS}/config")
    published = {key["name"]: key["type"] for key in keys}
    of_plug_in = {key: kind for key, kind in published.items() if kind_of(key, keys_of(OF_CONNECT)) is None}
    shipped = [line.split("\t") for line in text_of(declared.CATALOGUE).splitlines()]
    added = next(n for n, row in enumerate(shipped) if row[0].endswith("absent from the list it publishes"))
    assert {row[0]: row[1] for row in shipped[2:added]} == of_plug_in
