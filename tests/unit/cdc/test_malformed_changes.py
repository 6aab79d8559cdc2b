"""A record that is no change of a row is refused with its place, whatever stands in it; see the table."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from cdc import ChangeDecoder, decode_message
from cdc.errors import UndecodableChange
from tests.rows import each_row
from tests.unit.cdc.malformed_changes import ITEMS, MALFORMED, registered, written

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


def test_a_message_of_the_log_is_read() -> None:
    message = {"prefix": "p", "content": base64.b64encode(b"hello").decode()}
    value = json.dumps({"op": "m", "message": message, "source": {"lsn": 1}}).encode()
    assert decode_message(value, offset=7).content == b"hello"
