"""Values that an update left alone, and a user's own values that look like Debezium's word for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from cdc import ChangeDecoder, ConnectClient, JsonWithSchemas, PlainJson, apply_connector
from cdc.changes.change_records import uuid_of
from cdc.changes.rules import FIELD_UNAVAILABLE, UNAVAILABLE
from cdc.connectors.encodings import Encoding
from cdc.source.signals import Signals
from eventstore.settings import Settings
from eventstore.topics import TopicRecord

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
TABLE = sa.Table(
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
def test_only_a_missing_value_is_missing(
    captured: Callable[[], Any],
    connect: ConnectClient,
    settings: Settings,
    records_of: Callable[..., list[TopicRecord]],
    name: str,
    encoding: Encoding,
) -> None:
    shop = captured()
    columns = ", ".join(f"{column} {ddl}" for column, (_, ddl, *_) in COLUMNS.items())
    shop.run(f"CREATE TABLE public.apart (id int PRIMARY KEY, label text NOT NULL, {columns})")
    shop.run(*(f"ALTER TABLE public.apart ALTER {column} SET STORAGE EXTERNAL" for column in COLUMNS))
    with shop.engine.begin() as connection:
        connection.execute(TABLE.insert().values(id=1, label="first", **OWN))
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
        connection.execute(TABLE.insert().values(id=2, label="first", **APART))
        connection.execute(TABLE.update().values(label="second"))
    (read,) = Signals(shop.engine, source, settings, connect).snapshot(["public.apart"]).wait()

    decoder = ChangeDecoder(TABLE)
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
