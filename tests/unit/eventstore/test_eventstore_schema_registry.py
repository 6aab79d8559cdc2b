"""A schema's id follows from the schema, and from all of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.errors import NotFramedAvro, SchemaConflict
from eventstore.schema_registry import RegisteredSchema, canonical, check_same, fingerprint

SCHEMA: dict[str, Any] = {
    "type": "record",
    "namespace": "order",
    "name": "placed",
    "fields": [{"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4}}],
}


def test_the_fingerprint_never_changes() -> None:
    assert fingerprint(SCHEMA) == 1812711021


def test_the_order_of_keys_does_not_matter() -> None:
    assert fingerprint(dict(reversed(SCHEMA.items()))) == fingerprint(SCHEMA)


def test_a_logical_type_does_matter() -> None:
    other = {**SCHEMA, "fields": [{"name": "amount", "type": "bytes"}]}
    assert fingerprint(other) != fingerprint(SCHEMA)


@given(st.dictionaries(st.text(), st.text() | st.integers()))
def test_ids_fit_31_bits(schema: dict[str, Any]) -> None:
    assert 0 <= fingerprint(schema) < 2**31


def test_the_canonical_form_has_sorted_keys_and_no_spaces() -> None:
    assert canonical({"b": 1, "a": ["é"]}) == '{"a":["é"],"b":1}'


def test_a_registered_schema_survives_its_topic_record() -> None:
    registered = RegisteredSchema.of(SCHEMA)
    assert registered.name == "order.placed"
    assert RegisteredSchema.from_json(registered.to_json()) == registered


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"id": 1}', b"\xff"])
def test_a_foreign_record_is_no_schema(payload: bytes) -> None:
    with pytest.raises(NotFramedAvro):
        RegisteredSchema.from_json(payload)


def test_two_schemas_with_one_id_are_a_conflict() -> None:
    kept = RegisteredSchema(7, "order.placed", SCHEMA)
    check_same(kept, RegisteredSchema(7, "order.placed", dict(reversed(SCHEMA.items()))))
    with pytest.raises(SchemaConflict, match="id 7"):
        check_same(kept, RegisteredSchema(7, "order.shipped", {**SCHEMA, "name": "shipped"}))
