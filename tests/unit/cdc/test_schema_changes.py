"""A record that is no change of a row is refused with its place, and a column that one lacks is no NULL."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from cdc import ChangeDecoder, capture_table, decode_message
from cdc.errors import InvalidConnector, UndecodableChange
from eventstore.backends.sql.sqlite_log import SqliteLog
from tests.rows import each_row
from tests.unit.cdc.malformed_changes import MALFORMED, written
from tests.unit.cdc.schema_changes import CASES, ITEMS, OLD, WHOLE, WRITTEN, Change, flattened, in_json, registered


def decoder(**options: Any) -> ChangeDecoder:
    return ChangeDecoder(ITEMS, schemas=registered, **options)


def decoded(change: Change, encoding: str, **options: Any) -> Any:
    return decoder(**options).decode(*WRITTEN[encoding](change, 1), offset=7, place="items[0]@7")


def value_of(row: Any) -> dict[str, Any]:
    return {"id": 1, **{name: row[name] for name in ("name", "tier")}, "rate": Decimal(row["rate"])}


@each_row("encoding", WRITTEN)
@each_row("case", CASES)
def test_each_record_is_read_whole_or_refused_with_the_columns_that_it_lacks(encoding: str, case: str) -> None:
    for change in CASES[case][0]:
        if not change.lacks:
            row = change.row
            assert decoded(change, encoding).after == (None if row is None else value_of(row))
            continue
        with pytest.raises(UndecodableChange) as refused:
            decoded(change, encoding)
        assert f"no column {', '.join(change.lacks)}, which table public.items declares" in refused.value.message
        assert refused.value.place == "items[0]@7"


def test_the_remedy_names_the_table_to_read_again_and_the_declaration() -> None:
    with pytest.raises(UndecodableChange) as refused:
        decoded(Change({"name": "Ann"}, 1), "json")

    assert "factfold cdc snapshot take … --table public.items" in refused.value.remedy
    assert "null_if_absent=['tier', 'rate']" in refused.value.remedy


@pytest.mark.parametrize("encoding", WRITTEN)
def test_a_column_that_is_declared_so_is_null_in_a_record_that_lacks_it_and_only_there(encoding: str) -> None:
    absent, sent = (decoded(Change(row, 1), encoding, null_if_absent=["tier"]).after for row in (OLD, WHOLE))

    assert (absent["tier"], sent["tier"]) == (None, "gold")
    with pytest.raises(UndecodableChange, match="no column rate"):
        decoded(Change({"name": "Ann"}, 1), encoding, null_if_absent=["tier"])


@pytest.mark.parametrize("column", ["id", "other", "code"])
def test_a_key_an_unknown_column_and_one_that_must_have_a_value_are_never_null(column: str) -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text),
                     sa.Column("code", sa.Text, nullable=False))  # fmt: skip

    with pytest.raises(InvalidConnector, match=f"{column!r}, which is no nullable column of table t"):
        ChangeDecoder(table, null_if_absent=["name", column])


@pytest.mark.parametrize("encoding", WRITTEN)
def test_a_value_that_a_retyped_column_has_is_never_rounded(encoding: str) -> None:
    with pytest.raises(UndecodableChange, match=r"'rate' of table public\.items cannot hold '1\.2345'"):
        decoded(Change(WHOLE | {"rate": "1.2345"}, 1), encoding)


@pytest.mark.parametrize("row", [OLD, WHOLE, {**WHOLE, "more": 1}])
def test_a_flattened_row_is_no_change_event_whatever_its_columns_are(row: Any) -> None:
    with pytest.raises(UndecodableChange, match=r"no source\.lsn"):
        decoder().decode(*flattened(Change(row, 1), 1), offset=0)


def test_what_a_row_was_before_has_the_columns_of_its_record_alone() -> None:
    body = json.loads(in_json(Change(None, 1), 1)[1]) | {"before": {"id": 1, **OLD}}
    change = decoder(full_identity=True).decode(b'{"id": 1}', json.dumps(body).encode(), offset=0)

    assert change.before == {"id": 1, "name": "Ann", "rate": Decimal("1.50")}


def test_a_column_that_a_capture_in_sqlite_does_not_have_is_refused_until_it_is_captured(tmp_path: Any) -> None:
    captured, table = (
        sa.Table("items", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True),
                 *(sa.Column(name, sa.Text) for name in names)) for names in (["name"], ["name", "tier"])
    )  # fmt: skip
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, name="Ann", tier="gold"))
    capture_table(engine, captured, topic="items")
    capture_table(engine, table, topic="items")
    engine.dispose()

    with SqliteLog(engine.url.database or "") as log:
        (page,) = log.records("items", 0, log.end_offsets(["items"])["items"][0])
    before, after = ((record[1].encode(), record[2]) for record in page)
    with pytest.raises(UndecodableChange, match="no column tier"):
        ChangeDecoder(table).decode(*before, offset=0)
    assert (ChangeDecoder(table).decode(*after, offset=1).after or {})["tier"] == "gold"


AT = "items[0]@7"
DECODER = ChangeDecoder(ITEMS, schemas=registered)


@each_row(("encoding", "what"), [(encoding, what) for encoding, records in MALFORMED.items() for what in records])
def test_what_is_no_change_of_a_row_is_refused_with_its_place(encoding: str, what: str) -> None:
    with pytest.raises(UndecodableChange) as refused:
        DECODER.decode(*MALFORMED[encoding][what], offset=7, place=AT)

    assert refused.value.place == AT


@pytest.mark.parametrize("encoding", MALFORMED)
def test_changes_of_every_form_are_read(encoding: str) -> None:
    for key, value in written(encoding).values():
        assert DECODER.decode(key, value, offset=7).key == {"id": 1}


DEEP = "[" * 5_000
SCHEMA: dict[str, Any] = {"field": "after", "type": "struct", "fields": []}
ODD_SCHEMAS: dict[str, Any] = {
    "a list for a type": {"type": ["struct"], "fields": []},
    "a number for fields": {"type": "struct", "fields": 5},
    "numbers in fields": {"type": "struct", "fields": [5]},
    "a word for a scale": {"type": "struct", "fields": [], "parameters": {"scale": "x"}},
    "a number for parameters": {"type": "struct", "fields": [], "parameters": 5},
    "no type": {"fields": []},
}


@pytest.mark.parametrize("what", ODD_SCHEMAS)
def test_a_schema_that_is_none_of_connect_s_is_refused(what: str) -> None:
    value = json.dumps(
        {"schema": ODD_SCHEMAS[what], "payload": {"op": "u", "after": {}, "source": {"lsn": 1}}}
    ).encode()
    with pytest.raises(UndecodableChange, match="none of Connect's"):
        DECODER.decode(b'{"id": 1}', value, offset=7)


def test_a_position_of_too_many_brackets_is_refused() -> None:
    source = {"snapshot": "incremental", "sequence": DEEP}
    value = json.dumps({"op": "r", "after": {"id": 1}, "source": source}).encode()
    with pytest.raises(UndecodableChange):
        DECODER.decode(b'{"id": 1}', value, offset=7)


@pytest.mark.parametrize("content", ["no base64!", [1], 5, {"a": 1}, "é"])
def test_a_message_of_the_log_without_its_content_is_refused(content: Any) -> None:
    message = {"prefix": "p", "content": content}
    value = json.dumps({"op": "m", "message": message, "source": {"lsn": 1}}).encode()
    with pytest.raises(UndecodableChange, match="no base64"):
        decode_message(value, offset=7)
