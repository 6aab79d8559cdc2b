"""One connector of each kind, declared with as little as it takes."""

from __future__ import annotations

from typing import Any

from cdc import (
    CustomSource,
    MariaDbSource,
    MirrorCheckpoint,
    MirrorHeartbeat,
    MirrorSource,
    MySqlSource,
    OutboxSource,
    PostgresSource,
)

REFERENCE = "${file:/secrets/shop.properties:password}"
_LOGIN = {"host": "db", "user": "shop_cdc", "password": REFERENCE, "topic_prefix": "shop"}
_HISTORY = {"history_bootstrap_servers": "kafka:9092"}
_CLUSTERS = {
    "source_alias": "here",
    "target_alias": "there",
    "source_bootstrap_servers": "a:9092",
    "target_bootstrap_servers": "b:9092",
}


def postgres(**changes: Any) -> PostgresSource:
    return _of(PostgresSource, _LOGIN | {"database": "shop", "tables": ("public.items",)}, changes)


def outbox(**changes: Any) -> OutboxSource:
    return _of(OutboxSource, _LOGIN | {"database": "shop"}, changes)


def mysql(**changes: Any) -> MySqlSource:
    return _of(MySqlSource, _LOGIN | _HISTORY | {"tables": ("shop.items",)}, changes)


def mariadb(**changes: Any) -> MariaDbSource:
    return _of(MariaDbSource, _LOGIN | _HISTORY | {"tables": ("shop.items",)}, changes)


def custom(**changes: Any) -> CustomSource:
    return _of(CustomSource, {"topic_prefix": "shop", "class_name": "com.example.Source", "tables": ("a.b",)}, changes)


def mirror(**changes: Any) -> MirrorSource:
    return _of(MirrorSource, _CLUSTERS | {"topics": (r"shop\..*",)}, changes)


def checkpoint(**changes: Any) -> MirrorCheckpoint:
    return _of(MirrorCheckpoint, _CLUSTERS | {"groups": ("billing",)}, changes)


def heartbeat(**changes: Any) -> MirrorHeartbeat:
    return _of(MirrorHeartbeat, _CLUSTERS, changes)


DEBEZIUM = (postgres, outbox, mysql, mariadb)
CHANGELOGS = (postgres, mysql, mariadb)
MIRRORS = (mirror, checkpoint, heartbeat)


def _of(kind: Any, fields: dict[str, Any], changes: dict[str, Any]) -> Any:
    return kind(**{"name": "shop"} | fields | changes)
