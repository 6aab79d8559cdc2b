"""NULL written into a nullable column that has a DEFAULT, of every type, through a real connector."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table

from cdc import ApicurioAvro, ChangeDecoder, ConnectClient, JsonWithSchemas, PlainJson, apply_connector
from cdc.connectors.encodings import Encoding
from cdc.errors import SourceNotReady
from cdc.source.grants import check_source
from cdc.transforms import Flatten, InsertField, Mask
from eventstore.topics import TopicRecord
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
    shop = captured()
    shop.run(*every_type.create_statements())
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
def test_null_arrives_as_null_in_snapshot_and_stream(
    shop: Any, connect: ConnectClient, records_of: Callable[..., list[TopicRecord]], name: str, encoding: Encoding
) -> None:
    source = capture(shop, connect, name, encoding=encoding)
    decoder = ChangeDecoder(_MODEL, full_identity=True)
    changes = [decoder.decode(r.key, r.value, offset=r.offset) for r in records_of(source.topics[0], count=4)]

    rows = [{name: (change.after or {})[name] for name in NAMES} for change in changes]
    assert [(change.op.value, change.key["id"]) for change in changes] == [("r", 1), ("c", 2), ("c", 3), ("u", 3)]
    assert rows[0] == rows[1] == rows[3] == NOTHING
    assert [name for name, value in rows[2].items() if value is None] == []


def test_null_stays_null_through_transforms_that_take_rows_apart(
    shop: Any, connect: ConnectClient, records_of: Callable[..., list[TopicRecord]]
) -> None:
    transforms = (Flatten(), Mask(fields=("code",)), InsertField(field="origin", value="shop"))
    source = capture(shop, connect, "flat", transforms=transforms)
    rows = [json.loads(record.value or b"") for record in records_of(source.topics[0], count=4)]

    assert [row["origin"] for row in rows] == ["shop"] * 4
    assert [{name: row[name] for name in NAMES} for row in (rows[0], rows[1], rows[3])] == [NOTHING] * 3


def test_avro_is_refused_before_anything_is_made(shop: Any, connect: ConnectClient) -> None:
    avro = ApicurioAvro(registry_url="http://127.0.0.1:1/apis/registry/v3")
    declared = shop.prepared(shop.source(name=f"{shop.name}-avro", tables=(TABLE,), encoding=avro))

    with pytest.raises(SourceNotReady, match=rf"a NULL in small, .*, docs of {TABLE} would arrive") as refused:
        apply_connector(connect, declared, source=shop.engine)

    assert "encoding=PlainJson() or JsonWithSchemas()" in refused.value.remedy
    assert declared.name not in connect.connectors()


def test_avro_is_taken_where_no_column_is_both_nullable_and_defaulted(shop: Any) -> None:
    shop.run(
        "CREATE DOMAIN filled AS text NOT NULL",
        "CREATE TABLE few (id serial PRIMARY KEY, a text NOT NULL DEFAULT '', b text, c text DEFAULT NULL,"
        " d filled DEFAULT '', e int GENERATED ALWAYS AS (1) STORED)",
    )
    avro = ApicurioAvro(registry_url="http://127.0.0.1:1/apis/registry/v3")
    declared = shop.prepared(shop.source(name=f"{shop.name}-few", tables=("public.few",), encoding=avro))

    check_source(shop.engine, declared)
