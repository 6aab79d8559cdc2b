"""Signals without a server: what is sent, what is refused before anything is sent, what silence is called."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from cdc import ApicurioAvro, JsonWithSchemas, grant_statements
from cdc.connect.status import ConnectorStatus, TaskStatus
from cdc.errors import ConnectorTimeout, InvalidConnector, UnknownConnector, UnsupportedEncoding
from cdc.source.notifications import AwaitedSnapshot, Notification, SnapshotKind, Stage
from cdc.source.signal_table import signal_rights, signal_statements
from cdc.source.signals import Signalled, Signals
from eventstore.errors import InvalidIdentifier
from eventstore.settings import Settings
from tests.errors import raises
from tests.unit.cdc.declared import postgres

SECRET = "sentinel-of-a-password"
SOURCE = postgres(
    name="shop_tables", password=SECRET, tables=("public.items", "public.parts"), signal_table="public.signals",
    notifications_topic="shop.notifications", allow_literal_secrets=True,
)  # fmt: skip
SETTINGS = Settings.for_broker("localhost:1")


class Database:
    """Takes the statements an engine would."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    @contextmanager
    def begin(self) -> Iterator[Database]:
        yield self

    def exec_driver_sql(self, statement: str, values: Any) -> None:
        self.sent.append((statement, values))


class Said:
    """A reader to whom the connector says these things, one a look, and then nothing."""

    def __init__(self, *stages: Stage, tables: Sequence[tuple[str, ...]] = ()) -> None:
        self._stages = itertools.zip_longest(stages, tables, fillvalue=())

    def __enter__(self) -> Said:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def poll(self, timeout: float) -> list[Notification]:
        noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
        one = [
            Notification(
                id="mine", connector="shop", kind=SnapshotKind.INCREMENTAL, stage=stage, time=noon, tables=tables
            )
            for stage, tables in itertools.islice(self._stages, 1)
        ]
        return one

    def close(self) -> None:
        """Nothing is open."""


class Worker:
    """A Connect client that knows one state of the connector."""

    def __init__(self, state: str, **settings: str) -> None:
        self.state, self.settings = state, settings

    def status(self, name: str) -> ConnectorStatus:
        if self.state == "GONE":
            raise UnknownConnector("no such connector", remedy="apply it", status=404)
        return ConnectorStatus(name, self.state, "w", (TaskStatus(0, self.state, "w"),))

    def config(self, name: str) -> dict[str, str]:
        return SOURCE.config() | self.settings


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def signals(database: Database, monkeypatch: pytest.MonkeyPatch) -> Signals:
    monkeypatch.setattr(Signals, "listen", lambda self: Said())
    return Signals(database, SOURCE, SETTINGS)  # type: ignore[arg-type]


def sent(database: Database) -> tuple[str, dict[str, Any]]:
    ((statement, (signal, kind, data)),) = database.sent
    assert statement == 'INSERT INTO "public"."signals" (id, type, data) VALUES (%s, %s, %s)'
    assert len(signal) == 36
    return kind, json.loads(data)


def test_an_incremental_snapshot_names_its_tables_and_conditions(signals: Signals, database: Database) -> None:
    signals.snapshot(["public.items", "public.items"], where={"public.items": "id > 7"}, surrogate_key="number")
    condition = {"data-collection": "public.items", "filter": "id > 7"}
    assert sent(database) == (
        "execute-snapshot",
        {
            "type": "incremental",
            "data-collections": ["public.items"],
            "additional-conditions": [condition],
            "surrogate-key": "number",
        },
    )


def test_a_blocking_snapshot_gets_its_condition_as_a_query(signals: Signals, database: Database) -> None:
    signals.blocking_snapshot(["public.items"], where={"public.items": "id > 7 OR id < 3"})
    _, data = sent(database)
    assert data["type"] == "blocking"
    assert [one["filter"] for one in data["additional-conditions"]] == [
        'SELECT * FROM "public"."items" WHERE (id > 7 OR id < 3)'
    ]


@pytest.mark.parametrize(
    "table", ["public.other", "items", "", 'public.items"; DROP TABLE items --', "public..items", "public.it*", "ä.b"]
)
def test_a_table_that_is_not_captured_is_refused_and_nothing_is_sent(signals, database, table):
    for ask in (signals.snapshot, signals.blocking_snapshot, signals.stop):
        with pytest.raises((InvalidConnector, InvalidIdentifier)):
            ask([table])
    with pytest.raises((InvalidConnector, InvalidIdentifier)):
        signals.snapshot(["public.items"], where={table: "true"})
    with pytest.raises(InvalidIdentifier):
        signals.snapshot(["public.items"], surrogate_key=f"{table} ")
    assert database.sent == []


def test_a_source_without_signals_is_refused(database: Database) -> None:
    for missing in ("signal_table", "notifications_topic"):
        with pytest.raises(InvalidConnector, match=f"declares no {missing}"):
            Signals(database, dataclasses.replace(SOURCE, **{missing: None}), SETTINGS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("worker", "cause", "remedy"),
    [
        (None, r"in 0\.01 s$", "far behind"),
        (Worker("PAUSED"), "it stands PAUSED", "factfold cdc resume"),
        (Worker("GONE"), "knows no such connector", "factfold cdc apply"),
        (Worker("RUNNING", **{"signal.data.collection": "public.x"}), "another signal.data.collection", "apply"),
        (Worker("RUNNING"), r"in 0\.01 s$", "far behind"),
    ],
)
def test_silence_is_told_with_its_cause(database: Database, worker: Any, cause: str, remedy: str) -> None:
    signals = Signals(database, SOURCE, SETTINGS, worker)  # type: ignore[arg-type]
    awaited = AwaitedSnapshot("mine", SnapshotKind.INCREMENTAL, ("public.items",))
    with raises(ConnectorTimeout, code="signal-not-answered") as silent:
        Signalled("mine", signals, Said(), awaited).wait(answer_within=0.01)  # type: ignore[arg-type]
    assert re.search(cause, silent.value.message)
    assert remedy in silent.value.remedy
    assert SECRET not in str(silent.value)


def test_a_snapshot_that_goes_on_is_told_with_how_far_it_is(signals: Signals) -> None:
    awaited = AwaitedSnapshot("mine", SnapshotKind.INCREMENTAL, ("public.items",))
    said = Said(Stage.STARTED)
    with raises(ConnectorTimeout, code="snapshot-unfinished", match="0 of 1 tables read"):
        Signalled("mine", signals, said, awaited).wait(timeout=0.05)  # type: ignore[arg-type]


def test_a_stop_of_some_tables_is_answered_by_what_names_them(database, monkeypatch):
    signals = Signals(database, SOURCE, SETTINGS)  # type: ignore[arg-type]
    others, ours = ("public.parts",), ("public.parts", "public.items")
    monkeypatch.setattr(Signals, "listen", lambda self: Said(Stage.ABORTED, Stage.ABORTED, tables=[others, ours]))
    assert signals.stop(["public.items"]).tables == ours
    monkeypatch.setattr(Signals, "listen", lambda self: Said(Stage.ABORTED, tables=[others]))
    with raises(ConnectorTimeout, code="signal-not-answered"):
        signals.stop(["public.items"], timeout=0.05)


def test_answers_in_avro_need_their_schemas_before_anything_is_sent(database: Database) -> None:
    avro = dataclasses.replace(SOURCE, encoding=ApicurioAvro(registry_url="http://registry:8080/apis/registry/v3"))
    with raises(UnsupportedEncoding, match="notifications", remedy="schemas="):
        Signals(database, avro, SETTINGS)  # type: ignore[arg-type]
    Signals(database, avro, SETTINGS, schemas=lambda schema_id: pytest.fail("asked"))  # type: ignore[arg-type]
    Signals(database, dataclasses.replace(SOURCE, encoding=JsonWithSchemas()), SETTINGS)  # type: ignore[arg-type]
    assert database.sent == []


def test_what_holds_a_password_does_not_show_it(signals: Signals) -> None:
    assert SECRET not in repr(signals)


def test_the_sql_of_a_source_has_its_signal_table() -> None:
    assert list(signal_statements(SOURCE)) == [
        'CREATE TABLE "public"."signals" ("id" varchar(64) NOT NULL, "type" varchar(64) NOT NULL, "data" text NOT NULL,'
        ' PRIMARY KEY ("id"))'
    ]
    assert list(signal_rights(SOURCE)) == ['GRANT INSERT ON TABLE "public"."signals" TO "shop_cdc"']
    statements = grant_statements(SOURCE)
    assert {*signal_statements(SOURCE), *signal_rights(SOURCE)} < set(statements)
    assert statements.index(next(signal_statements(SOURCE))) < statements.index(next(signal_rights(SOURCE)))
    plain = dataclasses.replace(SOURCE, signal_table=None)
    assert not [statement for statement in grant_statements(plain) if "signals" in statement]


# ---- Notifications of a connector, and snapshots that were asked for, by what is heard from Debezium 3.7
