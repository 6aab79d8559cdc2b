"""NULL written into a nullable column that has a DEFAULT, of every type, through a real connector."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Column, Integer, MetaData, Table
from sqlalchemy.dialects.postgresql import JSONB

from cdc import ApicurioAvro, ChangeDecoder, ConnectClient, JsonWithSchemas, PlainJson, apply_connector
from cdc.changes.change_records import uuid_of
from cdc.changes.rules import FIELD_UNAVAILABLE, UNAVAILABLE
from cdc.errors import SourceNotReady
from cdc.source.grants import check_source
from cdc.source.signals import Signals
from cdc.transforms import Filter, Flatten, HasHeader, InsertHeader, Mask, RouteByRegex, TopicMatches
from eventstore.topics import TopicRecord
from tests.connectors import rest
from tests.recordings import every_type

TABLE = "public.every_type"
# No Python type holds bits of varying number.
CASES = [case for case in every_type.CASES if case.name != "vbits"]
NAMES = [case.name for case in CASES]
NOTHING = dict.fromkeys(NAMES)
_MODEL = Table(
    "every_type", MetaData(), Column("id", Integer, primary_key=True), *(Column(c.name, c.type) for c in CASES)
)


def insert(number: int) -> str:
    return f"INSERT INTO {TABLE} (id, {', '.join(NAMES)}) VALUES ({number}, {', '.join(['NULL'] * len(NAMES))})"


@pytest.fixture(scope="module")
def shop(captured: Callable[[], Any]) -> Any:
    """A table whose columns all have a default, and a row of NULLs before any connector."""
    shop = captured(*every_type.create_statements())
    for case in CASES:
        shop.run(f"ALTER TABLE {TABLE} ALTER {case.name} SET DEFAULT {case.values['usual'].sql}")
    shop.run(f"ALTER TABLE {TABLE} ALTER seen SET DEFAULT now()", insert(1))
    return shop


def capture(shop: Any, connect: ConnectClient, name: str, **changes: Any) -> Any:
    """A connector that has read the first row, and streams one of NULLs and one that is set to NULL."""
    declared = shop.source(
        name=f"{shop.name}-{name}", topic_prefix=f"{shop.name}_{name}", tables=(TABLE,), partitions=1, **changes
    )
    shop.run(f"DELETE FROM {TABLE} WHERE id > 1")
    apply_connector(connect, shop.prepared(declared), source=shop.engine)
    shop.run(insert(2), f"INSERT INTO {TABLE} (id) VALUES (3)")
    shop.run(f"UPDATE {TABLE} SET {', '.join(f'{name} = NULL' for name in NAMES)} WHERE id = 3")
    return declared


@pytest.mark.parametrize(
    ("name", "encoding"), [("plain", PlainJson()), ("schemas", JsonWithSchemas(times="adaptive", decimals="precise"))]
)
def test_null_arrives_as_null_in_snapshot_and_stream(shop, connect, records_of, name, encoding):
    source = capture(shop, connect, name, encoding=encoding)
    decoder = ChangeDecoder(_MODEL, full_identity=True)
    changes = [decoder.decode(r.key, r.value, offset=r.offset) for r in records_of(source.topics[0], count=4)]

    rows = [{name: (change.after or {})[name] for name in NAMES} for change in changes]
    assert [(change.op.value, change.key["id"]) for change in changes] == [("r", 1), ("c", 2), ("c", 3), ("u", 3)]
    assert rows[0] == rows[1] == rows[3] == NOTHING
    assert [name for name, value in rows[2].items() if value is None] == []


def test_avro_is_refused_before_anything_is_made(shop, connect):
    avro = ApicurioAvro(registry_url="http://127.0.0.1:1/apis/registry/v3")
    declared = shop.prepared(shop.source(name=f"{shop.name}-avro", tables=(TABLE,), encoding=avro))

    with pytest.raises(SourceNotReady, match=rf"a NULL in small, .*, docs of {TABLE} would arrive") as refused:
        apply_connector(connect, declared, source=shop.engine)

    assert "encoding=PlainJson() or JsonWithSchemas()" in refused.value.remedy
    assert declared.name not in connect.connectors()


def test_avro_is_taken_where_no_column_is_both_nullable_and_defaulted(shop):
    shop.run(
        "CREATE DOMAIN filled AS text NOT NULL",
        "CREATE TABLE few (id serial PRIMARY KEY, a text NOT NULL DEFAULT '', b text, c text DEFAULT NULL,"
        " d filled DEFAULT '', e int GENERATED ALWAYS AS (1) STORED)",
    )
    avro = ApicurioAvro(registry_url="http://127.0.0.1:1/apis/registry/v3")
    declared = shop.prepared(shop.source(name=f"{shop.name}-few", tables=("public.few",), encoding=avro))

    check_source(shop.engine, declared)


# ---- Values that an update left alone, and a user's own values that look like Debezium's word for them


LONG = "long" * 2500
CODES = list(UNAVAILABLE.encode())
# By the column's name: its type in Python and in the database, a user's own value, a value that is stored apart.
COLUMNS: dict[str, tuple[Any, str, Any, Any]] = {
    "notes": (sa.Text(), "text", UNAVAILABLE, LONG),
    "code": (sa.String(20_000), "varchar(20000)", UNAVAILABLE, LONG),
    "raw": (sa.LargeBinary(), "bytea", UNAVAILABLE.encode(), LONG.encode()),
    "doc": (JSONB(), "jsonb", UNAVAILABLE, {"long": LONG}),
    "amount": (sa.Numeric(20_000, 0), "numeric", Decimal(1), Decimal("7" * 20_000)),
    "words": (sa.ARRAY(sa.Text()), "text[]", [UNAVAILABLE], [LONG]),
    "short": (sa.ARRAY(sa.String(40)), "varchar(40)[]", [UNAVAILABLE], ["some text"] * 2500),
    "numbers": (sa.ARRAY(sa.Integer()), "integer[]", CODES, [1] * 2500),
    "bigs": (sa.ARRAY(sa.BigInteger()), "bigint[]", CODES, [1] * 2500),
    "uids": (sa.ARRAY(sa.Uuid()), "uuid[]", [uuid_of(UNAVAILABLE)], [uuid_of("other")] * 2500),
}  # fmt: skip
APART_TABLE = sa.Table(
    "apart",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("label", sa.Text, nullable=False),
    *(sa.Column(name, kind) for name, (kind, *_) in COLUMNS.items()),
)
OWN = {name: own for name, (_, _, own, _) in COLUMNS.items()}
APART = {name: apart for name, (_, _, _, apart) in COLUMNS.items()}


@pytest.mark.parametrize(
    ("name", "encoding"), [("plain", PlainJson()), ("schemas", JsonWithSchemas(times="adaptive"))], ids=str
)
def test_only_a_missing_value_is_missing(captured, connect, settings, records_of, name, encoding):
    shop = captured()
    columns = ", ".join(f"{column} {ddl}" for column, (_, ddl, *_) in COLUMNS.items())
    shop.run(f"CREATE TABLE public.apart (id int PRIMARY KEY, label text NOT NULL, {columns})")
    shop.run(*(f"ALTER TABLE public.apart ALTER {column} SET STORAGE EXTERNAL" for column in COLUMNS))
    with shop.engine.begin() as connection:
        connection.execute(APART_TABLE.insert().values(id=1, label="first", **OWN))
    source = shop.prepared(
        shop.source(
            tables=("public.apart",),
            partitions=1,
            encoding=encoding,
            transactions=True,
            signal_table="public.signals",
            notifications_topic=f"{shop.name}.notifications",
        )
    )
    apply_connector(connect, source, source=shop.engine)
    with shop.engine.begin() as connection:
        connection.execute(APART_TABLE.insert().values(id=2, label="first", **APART))
        connection.execute(APART_TABLE.update().values(label="second"))
    (read,) = Signals(shop.engine, source, settings, connect).snapshot(["public.apart"]).wait()

    decoder = ChangeDecoder(APART_TABLE)
    records = records_of(source.topics[0], count=6)
    changes = [decoder.decode(record.key, record.value, offset=record.offset) for record in records]
    assert read.rows == 2
    assert [change.op.value for change in changes] == ["r", "c", "u", "u", "r", "r"]
    left_alone = {change.key["id"]: change for change in changes if change.op.value == "u"}
    assert set(COLUMNS) - left_alone[2].unavailable == set()
    for change in changes:
        if change is not left_alone[2]:
            assert change.unavailable == frozenset()
            expected = OWN if change.key["id"] == 1 else APART
            assert {column: (change.after or {})[column] for column in COLUMNS} == expected
    bodies = [json.loads(record.value or b"") for record in records]
    assert {body.get("payload", body)[FIELD_UNAVAILABLE] for body in bodies} == {source.placeholder}
    assert FIELD_UNAVAILABLE.encode() not in (records_of(source.transaction_topic, count=2)[0].value or b"")


# ---- Transforms at work on a live worker: what each makes of the records of one connector


ENVELOPES, ROWS, DROPPED = "public.people", "public.addresses", "public.drafts"


@pytest.fixture(scope="module")
def source(captured: Callable[[], Any], connect: ConnectClient) -> Any:
    """A source in its second life: envelopes as they are, rows flattened, masked and routed, drafts dropped."""
    shop = captured()
    for table in (ENVELOPES, ROWS, DROPPED):
        shop.run(f"CREATE TABLE {table} (id int PRIMARY KEY, email text, town text)")
        shop.run(f"INSERT INTO {table} VALUES (1, 'a@example.org', 'Ulm')")
    rows = TopicMatches(pattern=rf".*\.{ROWS}")
    declared = shop.source(
        tables=(ENVELOPES, ROWS, DROPPED),
        epoch=2,
        signal_table="public.signals",
        transactions=True,
        transforms=(
            InsertHeader(header="draft", value="yes", when=TopicMatches(pattern=rf".*\.{DROPPED}")),
            Filter(when=HasHeader(header="draft")),
            Flatten(when=rows, fields=("op",)),
            # One predicate a transform: this one lets the other topics through, whose tombstones it could not mask.
            Mask(fields=("email",), replacement="(hidden)", when=rows, negate=False),
            RouteByRegex(pattern=rf"(.*)\.{ROWS}", replacement="$1.rows", when=rows),
        ),
    )
    apply_connector(connect, shop.prepared(declared), source=shop.engine)
    shop.run(f"DELETE FROM {ENVELOPES}", f"INSERT INTO {ROWS} VALUES (2, NULL, 'Bonn')")
    shop.run("INSERT INTO public.signals VALUES ('2', 'log', '{}')")
    return declared


def values(records: list[TopicRecord]) -> list[Any]:
    """The values of JSON records, None for tombstones."""
    return [None if record.value is None else json.loads(record.value) for record in records]


def test_changes_say_which_life_they_come_from_and_tombstones_stay_null(source, records_of):
    snapshot, deletion, tombstone = values(records_of(source.topic(ENVELOPES), count=3))

    assert (snapshot["op"], snapshot["factfold_epoch"]) == ("r", "2")
    assert (deletion["op"], deletion["factfold_epoch"]) == ("d", "2")
    assert tombstone is None


def test_the_life_is_said_of_transactions_too_and_in_no_other_record(source, records_of):
    begin = values(records_of(source.transaction_topic, count=2))[0]

    assert begin["status"] == "BEGIN"
    assert begin["factfold_epoch"] == "2"
    beats = values(records_of(f"__debezium-heartbeat.{source.topic_prefix}", count=1))
    assert all("factfold_epoch" not in beat for beat in beats)


def test_rows_are_flattened_masked_and_routed_in_that_order_and_null_stays_null(source, records_of):
    rows = values(records_of(f"{source.topic_prefix}.rows", count=2))

    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "email": "(hidden)", "town": "Ulm", "__op": "r"},
        {"id": 2, "email": None, "town": "Bonn", "__op": "c"},
    ]


def test_what_is_filtered_has_no_topic(source, records_of, connect):
    records_of(f"{source.topic_prefix}.rows", count=2)
    records_of(source.topic(ENVELOPES), count=3)

    topics = rest(connect, "GET", f"/connectors/{source.name}/topics")[source.name]["topics"]

    assert source.topic(ENVELOPES) in topics
    assert not {source.topic(DROPPED), source.topic(ROWS), f"{source.topic_prefix}.public.signals"} & set(topics)
