"""Maps (hstore) in change events. NOT recorded, for want of the extension: built as Debezium documents them.

`hstore.handling.mode=json`, our default, sends the JSON of the map as text; `map` sends a map, with or without schema.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table
from sqlalchemy.dialects.postgresql import HSTORE

from cdc import ChangeDecoder
from cdc.changes import rules
from cdc.errors import UndecodableChange

PARTS = Table("parts", MetaData(), Column("id", Integer, primary_key=True), Column("sizes", HSTORE))
SIZES = {"small": "1", "large": None}


def decoded(value: Any, *, schema: dict[str, Any] | None = None) -> Any:
    body: Any = {"op": "u", "after": {"id": 1, "sizes": value}, "source": {"lsn": 7, "snapshot": "false"}}
    if schema is not None:
        row = [{"field": "id", "type": "int32"}, {"field": "sizes", **schema}]
        envelope = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": row}]}
        body = {"schema": envelope, "payload": body}
    return ChangeDecoder(PARTS).decode(b'{"id": 1}', json.dumps(body).encode(), offset=0)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (json.dumps(SIZES), None),
        (json.dumps(SIZES), {"type": "string", "name": "io.debezium.data.Json"}),
        (SIZES, None),
        (SIZES, {"type": "map", "keys": {"type": "string"}, "values": {"type": "string", "optional": True}}),
    ],
    ids=["text", "text with schema", "map", "map with schema"],
)
def test_a_map_comes_out_as_it_went_in(value: Any, schema: dict[str, Any] | None) -> None:
    assert decoded(value, schema=schema).after == {"id": 1, "sizes": SIZES}


@pytest.mark.parametrize("mark", [rules.UNAVAILABLE, {rules.UNAVAILABLE: rules.UNAVAILABLE}], ids=["text", "map"])
def test_a_map_that_an_update_left_alone_is_unavailable(mark: Any) -> None:
    assert decoded(mark).unavailable == {"sizes"}


@pytest.mark.parametrize("wrong", ["[1]", "not JSON", 7, ["a"]])
def test_what_is_no_map_is_refused_with_its_column(wrong: Any) -> None:
    with pytest.raises(UndecodableChange, match="sizes"):
        decoded(wrong)
