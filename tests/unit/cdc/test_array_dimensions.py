"""Arrays of arrays, which Debezium sends without their values, are refused; an array of one dimension is as it came."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from cdc import ChangeDecoder
from cdc.errors import UndecodableChange, UnsupportedEncoding
from tests.rows import each_row


class Mood(Enum):
    calm = "calm"


# Each with what the connector has sent for an inner array of it, in JSON with and without schemas.
SENT = [
    (sa.SmallInteger(), None),
    (sa.Integer(), None),
    (sa.BigInteger(), None),
    (sa.Float(), None),
    (sa.Double(), None),
    (sa.Numeric(10, 2), None),
    (sa.Boolean(), None),
    (sa.LargeBinary(), None),
    (sa.Date(), None),
    (sa.DateTime(), None),
    (sa.DateTime(timezone=True), None),
    (sa.Time(), None),
    (pg.OID(), None),
    (sa.Text(), "[Ljava.lang.String;@44856fa9"),
    (sa.String(9), "[Ljava.lang.String;@68c398b7"),
    (sa.Uuid(), "[Ljava.util.UUID;@7b047907"),
    (sa.Enum(Mood), "[Ljava.lang.String;@2ad17f73"),
    (pg.JSON(), "[Ljava.lang.String;@1a902007"),
    (pg.JSONB(), "[Ljava.lang.String;@7d2b7afe"),
    (pg.INET(), "[Ljava.lang.Object;@39aeec7b"),
    (pg.MACADDR(), "[Ljava.lang.Object;@58a44661"),
    (pg.INT4RANGE(), "[Ljava.lang.Object;@5c0b1ad1"),
    (pg.TSVECTOR(), "[Ljava.lang.Object;@19073ae5"),
]


def decoder(kind: Any, **changes: Any) -> ChangeDecoder:
    columns = (sa.Column("id", sa.Integer, primary_key=True), sa.Column("a", sa.ARRAY(kind, **changes)))
    return ChangeDecoder(sa.Table("it", sa.MetaData(), *columns), full_identity=True)


def decoded(kind: Any, value: Any, **changes: Any) -> Any:
    event = {"op": "c", "before": None, "after": {"id": 1, "a": value}, "source": {"lsn": 1, "snapshot": "false"}}
    found = decoder(kind, **changes).decode(b'{"id": 1}', json.dumps(event).encode(), offset=0)
    return None if found.after is None else found.after["a"]


@each_row(("kind", "inner"), SENT, ids=str)
def test_an_array_of_arrays_is_refused_with_its_column(kind: Any, inner: str | None) -> None:
    with pytest.raises(UndecodableChange, match="column 'a' of table it"):
        decoded(kind, [inner, inner])


@each_row(("kind", "inner"), SENT, ids=str)
def test_an_empty_array_and_null_are_as_they_came(kind: Any, inner: str | None) -> None:
    assert (decoded(kind, []), decoded(kind, None)) == ([], None)


@each_row("kind", [kind for kind, inner in SENT if inner is not None], ids=str)
def test_nulls_alone_are_an_array_where_inner_arrays_do_not_come_as_null(kind: Any) -> None:
    assert decoded(kind, [None, None]) == [None, None]


@each_row("kind", [kind for kind, inner in SENT if inner is None], ids=str)
def test_nulls_alone_are_an_array_where_it_is_declared_with_one_dimension(kind: Any) -> None:
    assert decoded(kind, [None, None], dimensions=1) == [None, None]


def test_a_text_like_the_name_of_a_java_class_is_itself_where_one_dimension_is_declared() -> None:
    assert decoded(sa.Text(), ["[Ljava.lang.String;@44856fa9"], dimensions=1) == ["[Ljava.lang.String;@44856fa9"]
    assert decoded(sa.Text(), ["[Ljava.lang", "a [LString;@1", None]) == ["[Ljava.lang", "a [LString;@1", None]


@each_row("dimensions", [2, 3])
@each_row(("kind", "inner"), SENT, ids=str)
def test_more_than_one_dimension_is_refused_when_it_is_declared(kind: Any, inner: str | None, dimensions: int) -> None:
    with pytest.raises(UnsupportedEncoding, match=f"an array of {dimensions} dimensions") as refused:
        decoder(kind, dimensions=dimensions)
    assert refused.value.place == "it.a"


@pytest.mark.parametrize("kind", [pg.BIT(1), pg.BIT(3), pg.BIT(3, varying=True)], ids=str)
def test_an_array_of_bits_is_refused_when_it_is_declared(kind: Any) -> None:
    with pytest.raises(UnsupportedEncoding, match=r"column it\.a has type"):
        decoder(kind)
