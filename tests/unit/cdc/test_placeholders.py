"""What stands for a missing value is a text of the connector's own, and a user's value is never taken for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from cdc import ChangeDecoder, JsonWithSchemas, PostgresSource, capture_table
from cdc.changes.change_records import uuid_of
from cdc.changes.rules import FIELD_UNAVAILABLE, UNAVAILABLE
from cdc.errors import InvalidConnector, UnsupportedEncoding
from cdc.operating.planning import unread
from eventstore.backends.sql.sqlite_log import SqliteLog
from tests.rows import each_row
from tests.unit.cdc.declared import custom, mysql, postgres
from tests.unit.cdc.missing_values import FORMS, OWN, TABLE

SETTING = "unavailable.value.placeholder"
KEYS = ("name", "topic_prefix", "host", "port", "database", "user")


def change(row: Mapping[str, Any], mark: str | None, *, key: str = "1") -> Any:
    body = {"op": "u", "after": {"id": key, **dict.fromkeys(FORMS), **row}, "source": {"lsn": 1, "snapshot": "false"}}
    named = body if mark is None else {**body, FIELD_UNAVAILABLE: mark}
    return ChangeDecoder(TABLE).decode(json.dumps({"id": key}).encode(), json.dumps(named).encode(), offset=0)


def test_the_uuid_of_a_text_is_java_s() -> None:
    assert uuid_of(UNAVAILABLE) == UUID("b68a35a7-17ad-35b3-af2a-ae46edb4545a")  # recorded


@pytest.mark.parametrize("column", FORMS)
def test_a_connector_s_own_text_marks_a_missing_value_and_debezium_s_does_where_a_record_names_none(column):
    form = FORMS[column][1]
    (own, _), (sent, value) = form(OWN), form(UNAVAILABLE)
    assert change({column: own}, OWN).unavailable == change({column: sent}, None).unavailable == {column}
    assert change({"text": OWN}, None).after["text"] == OWN
    if column != "doc":  # a user's value that looks like Debezium's text arrives
        found = change({column: sent}, OWN)
        assert (found.unavailable, found.after[column]) == (frozenset(), value)


def test_keys_and_items_of_arrays_are_never_missing() -> None:
    assert change({"texts": [UNAVAILABLE, "b"]}, None, key=UNAVAILABLE).after["texts"] == [UNAVAILABLE, "b"]
    found = change({"texts": [OWN, "b"]}, OWN, key=OWN)
    assert (found.key["id"], found.after["id"], found.after["texts"]) == (OWN, OWN, [OWN, "b"])
    assert found.unavailable == frozenset()


OWN_TEXT = postgres().placeholder
CONTROLLED = {"transactions": True, "notifications_topic": "shop.notes", "signal_table": "public.signals", "epoch": 1}
STATIC = "transforms.unavailable.static.value"
SAID: list[tuple[Any, dict[str, str | None]]] = [
    # All records name the text but those that are no changes.
    (postgres(**CONTROLLED), {
        "transforms": "signals,epoch,unavailable", "transforms.unavailable.static.field": FIELD_UNAVAILABLE,
        STATIC: OWN_TEXT, SETTING: OWN_TEXT, "transforms.unavailable.negate": "true",
        "predicates.unavailable.pattern": r"shop\.transaction|shop\.notes|__debezium-heartbeat.*",
    }),
    # A source whose log has every value names a text too, and is not given the setting.
    (mysql(), {STATIC: mysql().placeholder, SETTING: None}),
    # A source that no reader of ours reads names none.
    (custom(), {"transforms": None}),
    # Records name a text that was passed unchecked.
    (postgres(unchecked={SETTING: "gone"}), {SETTING: "gone", STATIC: "gone"}),
]  # fmt: skip


@each_row(("declared", "settings"), SAID)
def test_a_connector_names_the_text_of_its_missing_values(declared: Any, settings: dict[str, str | None]) -> None:
    config = declared.config()
    assert {key: config.get(key) for key in settings} == settings
    assert bool(declared.placeholder) == (STATIC in config)


def test_a_text_is_of_one_connector_and_stays_the_same() -> None:
    changed = {"port": 1} | {key: "other" for key in KEYS if key != "port"}
    texts = {postgres(**{key: changed[key]}).placeholder for key in KEYS} | {postgres().placeholder}

    assert len(texts) == len(KEYS) + 1
    assert postgres(tables=("public.b",), encoding=JsonWithSchemas()).placeholder == postgres().placeholder
    assert all(text.startswith("__factfold_unavailable_") and len(text) == 55 for text in texts)


def test_the_password_has_no_part_in_the_text() -> None:
    def with_password(password: str) -> PostgresSource:
        return postgres(password=password, allow_literal_secrets=True)

    assert with_password("one").placeholder == with_password("two").placeholder


@pytest.mark.parametrize("text", [UNAVAILABLE, "gone"])
def test_a_text_that_a_user_may_write_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedEncoding) as refused:
        postgres(extra={SETTING: text})

    assert refused.value.place == SETTING
    assert postgres(extra={SETTING: postgres().placeholder}).config() == postgres().config()


def test_nothing_overrides_what_records_say() -> None:
    with pytest.raises(InvalidConnector, match="a field of the declaration owns it"):
        postgres(unchecked={"transforms.unavailable.static.value": "x"})


def test_a_plan_says_what_an_older_connector_misread() -> None:
    added = ("transforms", "predicates", SETTING)
    before = {key: value for key, value in postgres().config().items() if not key.startswith(added)}
    (note,) = unread(before, postgres().config())

    assert f"a user's own value {UNAVAILABLE} has been taken for a missing one" in note


def test_a_row_of_a_sqlite_file_is_never_missing_a_value(tmp_path: Any) -> None:
    table = sa.Table("notes", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("text", sa.Text))
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, text=UNAVAILABLE))
    capture_table(engine, table, topic="notes")
    with engine.begin() as connection:
        connection.execute(table.update().values(text=f"{UNAVAILABLE}!"))
        connection.execute(table.update().values(text=UNAVAILABLE))
    engine.dispose()

    decoder = ChangeDecoder(table)
    with SqliteLog(engine.url.database or "") as log:
        end = log.end_offsets(["notes"])["notes"][0]
        rows = [record for page in log.records("notes", 0, end) for record in page]
    found = [decoder.decode(row[1].encode(), row[2], offset=row[0]) for row in rows]
    assert [(one.unavailable, (one.after or {})["text"]) for one in found] == [
        (frozenset(), UNAVAILABLE),
        (frozenset(), f"{UNAVAILABLE}!"),
        (frozenset(), UNAVAILABLE),
    ]
