"""Connectors of MySQL, MariaDB, any other database and MirrorMaker: what they say, and what they refuse to say."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest
from sqlalchemy import create_engine

from cdc import Severity, diagnose_connector
from cdc.connect.status import SourceOffset
from cdc.connectors.base import kind_of, known_keys, text_of
from cdc.connectors.encodings import ApicurioAvro, JsonWithSchemas
from cdc.connectors.postgres_connector import PostgresConnector
from cdc.errors import InvalidConnector
from eventstore.errors import InvalidIdentifier
from tests.rows import each_row
from tests.unit.cdc.declared import (
    CHANGELOGS,
    DEBEZIUM,
    MIRRORS,
    REFERENCE,
    checkpoint,
    custom,
    heartbeat,
    mariadb,
    mirror,
    mysql,
    outbox,
    postgres,
)

ELSEWHERE = (mysql, mariadb, custom)
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
POLICY = "org.apache.kafka.connect.mirror."
SAID: list[tuple[Any, dict[str, str | None]]] = [
    # What Debezium would guess otherwise.
    *((declare(), {
        "exactly.once.support": "required", "heartbeat.interval.ms": "1000", "snapshot.mode": "initial",
        "tombstones.on.delete": "true", "topic.creation.default.cleanup.policy": "compact",
    }) for declare in ELSEWHERE),
    *((declare(tables=("shop.items", "shop.orders", "crm.people")), {
        "table.include.list": r"shop\.items,shop\.orders,crm\.people", "database.include.list": "shop,crm",
    }) for declare in (mysql, mariadb)),
    (mysql(server_id=7), {
        "schema.history.internal.kafka.topic": "shop.schema-history", "database.server.id": "7",
        "schema.history.internal.kafka.bootstrap.servers": "kafka:9092", "include.schema.changes": "false",
    }),
    # Of a database without a class of its own: the class, the settings and the modes as given.
    (custom(unchecked={"database.names": "a", "max.batch.size": 7, "db.password": REFERENCE},
            encoding=JsonWithSchemas(times="connect")), {
        "connector.class": "com.example.Source", "database.names": "a", "max.batch.size": "7",
        "db.password": REFERENCE, "time.precision.mode": "connect", "topic.prefix": "shop", "transforms": None,
    }),
    *((declare(extra={"driver.socketTimeout": "1"}), {"driver.socketTimeout": "1"})
      for declare in (postgres, mysql, mariadb)),
    # A mirror copies each committed record once, as bytes, whatever the converters of the worker are.
    *((declare(), {"key.converter": BYTES, "value.converter": BYTES, "header.converter": BYTES,
                   "replication.policy.class": f"{POLICY}DefaultReplicationPolicy"}) for declare in MIRRORS),
    *((declare(rename=False), {"replication.policy.class": f"{POLICY}IdentityReplicationPolicy"})
      for declare in MIRRORS),
    (mirror(), {"exactly.once.support": "required", "source.consumer.isolation.level": "read_committed"}),
    (mirror(exactly_once=False), {"exactly.once.support": "requested"}),
    # A checkpoint moves groups, which MirrorMaker does not by itself.
    (checkpoint(interval_seconds=2), {
        "sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": "2",
        "emit.checkpoints.interval.seconds": "2",
    }),
]  # fmt: skip


@each_row(("declared", "settings"), SAID)
def test_a_declaration_says_what_it_was_told_and_what_debezium_would_guess(declared, settings):
    config = declared.config()
    assert {key: config.get(key) for key in settings} == settings
    assert {type(value) for value in config.values()} == {str}


@each_row(
    ("declared", "topics"),
    [
        (postgres(), ["shop.public.items"]),
        (mysql(tables=("shop.items", "crm.people")), ["shop.shop.items", "shop.crm.people"]),
        (custom(tables=("shop.dbo.items", "log-2024")), ["shop.shop.dbo.items", "shop.log-2024"]),
    ],
)  # fmt: skip
def test_tables_have_topics_named_after_prefix_and_place(declared: Any, topics: list[str]) -> None:
    assert list(declared.topics) == topics
    assert declared.topic(topics[-1].removeprefix("shop.")) == topics[-1]


def test_a_server_id_stays_the_same_and_is_no_other_connector_s() -> None:
    assert mysql().server_id == mysql().server_id != mysql(name="other").server_id
    assert 100_000 <= mysql().server_id < 2**32


def test_the_topic_of_definitions_may_be_longer_than_a_prefix() -> None:
    assert mysql(topic_prefix="x" * 60).history_topic == f"{'x' * 60}.schema-history"


@each_row("declare", MIRRORS)
def test_replicas_are_the_brokers_own_choice_unless_told(declare: Any) -> None:
    for told, replicas in (({}, "-1"), ({"replicas": 3}, "3")):
        config = declare(**told).config()
        assert {value for key, value in config.items() if key.endswith("replication.factor")} == {replicas}


@each_row(
    ("declare", "changes", "place"),
    [
        (mysql, {"history_topic": "a b"}, "history_topic"),
        (mysql, {"tables": ()}, "tables"),
        (mysql, {"tables": ("items",)}, "tables"),
        (mysql, {"tables": ("shop.a,shop.b",)}, "tables"),
        (mysql, {"server_id": -1}, "server_id"),
        (mysql, {"extra": {"database.server.id": "1"}}, "database.server.id"),
        (mysql, {"signal_table": "signals"}, "signal_table"),
        (custom, {"tables": ()}, "tables"),
        (custom, {"tables": ("a b",)}, "tables"),
        (custom, {"unchecked": {"connector.class": "x"}}, "connector.class"),
        (custom, {"unchecked": {"mongodb.connection.string": "mongodb://db"}}, "mongodb.connection.string"),
        (mirror, {"extra": {"driver.socketTimeout": "1"}}, "driver.socketTimeout"),
        (mirror, {"topics": ()}, "topics"),
        (mirror, {"topics": ("a{1,2}",)}, "topics"),
        (checkpoint, {"groups": ()}, "groups"),
        (checkpoint, {"groups": (" ",)}, "groups"),
        (heartbeat, {"target_alias": "here"}, "shop"),
        (heartbeat, {"source_alias": "a.b"}, "shop"),
        (heartbeat, {"tasks": 0}, "tasks"),
        (heartbeat, {"extra": {"topics": "x"}}, "topics"),
        (mirror, {"extra": {"replication.factor": 2}}, "replication.factor"),
    ],
)
def test_what_cannot_be_or_cannot_work_is_refused_with_its_field_as_its_place(declare, changes, place):
    with pytest.raises((InvalidConnector, InvalidIdentifier)) as refused:
        declare(**changes)
    assert refused.value.place == place


@each_row("declare", [*ELSEWHERE, mirror])
def test_no_source_is_looked_into_that_nobody_knows_how_to_look_into(declare: Any) -> None:
    with pytest.raises(InvalidConnector, match=r"looks into PostgreSQL only|from Kafka to Kafka") as refused:
        declare().check_source(object())
    assert declare is mirror or "without source" in refused.value.remedy


@each_row("declare", [*DEBEZIUM, custom, *MIRRORS])
def test_a_diagnosis_says_of_a_side_that_it_was_not_looked_at(declare: Any) -> None:
    for engine in (None,) if declare in (postgres, outbox) else (None, create_engine("sqlite://")):
        (found,) = diagnose_connector(declare(), source=engine)
        assert (found.severity, found.check) == (Severity.OK, "source")
        assert "not looked at" in found.result
        assert declare not in (postgres, outbox) or found.result.endswith("was not given (--source-url)")


@each_row(
    ("offset", "streamed"),
    [
        ({"lsn": 2, "snapshot": "INITIAL", "snapshot_completed": True}, False),
        ({"lsn": 2, "lsn_proc": 2}, True),
        ({"file": "binlog.1", "pos": 4, "snapshot": "INITIAL"}, False),
        ({"file": "binlog.1", "pos": 4, "gtids": "a:1-5"}, True),
        ({"commit_lsn": "0:1:2", "snapshot": "INITIAL", "snapshot_completed": True}, False),
        ({"commit_lsn": "0:1:2", "change_lsn": "0:1:1", "event_serial_no": 1}, True),
        ({"sec": 1, "ord": 2, "initsync": True}, False),
        ({"sec": 1, "ord": 2, "resume_token": "82"}, True),
        ({"offset": 0}, True),
        ({}, False),
    ],
)
def test_an_offset_tells_whether_it_is_of_the_stream_of_changes(offset: dict[str, Any], streamed: bool) -> None:
    assert SourceOffset({}, offset).streamed is streamed


# ---- The lists of settings that are shipped, held against their own headings and against what declarations write


HEADING = re.compile(r"## (?P<java>\S+) v(?P<version>\S+) keys=(?P<keys>\d+)")
TYPES = {"STRING", "INT", "SHORT", "LONG", "DOUBLE", "BOOLEAN", "LIST", "CLASS", "PASSWORD"}
# Keys as Debezium 3.6.1 and 3.7.0 and Kafka 4.3.1 publish them; MariaDB's are MySQL's without three.
PUBLISHED = {
    "mariadb": 121,
    "mirror_checkpoint": 89,
    "mirror_heartbeat": 78,
    "mirror_source": 94,
    "mysql": 124,
    "postgres": 141,
}
LISTS = sorted(file.name for file in files("cdc.connectors").iterdir() if file.name.endswith("_keys.tsv"))


def published(catalogue: str) -> list[list[str]]:
    """The rows that the jar lists, without those that were added after them."""
    lines = text_of(catalogue).splitlines()
    added = next(n for n, line in enumerate(lines) if line.endswith("absent from the list it publishes"))
    return [line.split("\t") for line in lines[2:added]]


def test_every_list_is_looked_at_here() -> None:
    assert [name.removesuffix("_keys.tsv") for name in LISTS if not name.startswith("connect_")] == sorted(PUBLISHED)


@pytest.mark.parametrize("database", PUBLISHED)
def test_a_list_has_as_many_keys_as_its_heading_says(database: str) -> None:
    rows = published(f"{database}_keys.tsv")
    heading = HEADING.fullmatch(text_of(f"{database}_keys.tsv").splitlines()[1])

    assert heading is not None
    assert len(rows) == len({row[0] for row in rows}) == int(heading["keys"]) == PUBLISHED[database]
    assert {len(row) for row in rows} == {4}
    assert {row[1] for row in rows} <= TYPES


@pytest.mark.parametrize("declare", [*DEBEZIUM, *MIRRORS])
def test_a_connector_is_of_the_class_its_list_was_read_off(declare: Any) -> None:
    heading = HEADING.fullmatch(text_of(declare().CATALOGUE).splitlines()[1])

    assert heading is not None
    assert declare().config()["connector.class"] == heading["java"]


@pytest.mark.parametrize("declare", [*DEBEZIUM, *MIRRORS])
def test_every_key_a_declaration_writes_is_one_somebody_reads(declare: Any) -> None:
    known = known_keys(declare().CATALOGUE)

    assert [key for key in declare().config() if kind_of(key, known) is None] == []


@pytest.mark.parametrize("declare", CHANGELOGS)
def test_every_key_of_every_field_is_one_somebody_reads(declare: Any) -> None:
    declared = declare(
        epoch=1,
        transactions=True,
        signal_table="shop.signals",
        notifications_topic="notes",
        history=declare().captured,
        encoding=ApicurioAvro(registry_url="http://registry"),
    )
    known = known_keys(declared.CATALOGUE)

    assert [key for key in declared.config() if kind_of(key, known) is None] == []
    assert [key for key in declared._owned().keys if kind_of(key, known) is None] == []


def test_keys_of_the_list_that_stand_for_many_match_names_and_no_more() -> None:
    known = known_keys(PostgresConnector.CATALOGUE)

    assert kind_of("column.mask.with.12.chars", known) == "STRING"
    assert kind_of("column.mask.with.twelve.chars", known) is None
    assert kind_of("transforms.", known) is None


# ---- Transforms as objects, and as Connect reads them
