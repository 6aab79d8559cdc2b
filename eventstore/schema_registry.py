"""Schemas by number. The id is computed from the schema itself, so every writer finds the same one alone.

Or a registry gives it. Fingerprints have 31 bits and a registry counts from 1: a store may change from one to the
other, and what it wrote before stays readable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

from eventstore.errors import NotFramedAvro, SchemaError, UnknownSchema

_IDS: Final = range(2**31)


@dataclass(frozen=True)
class RegisteredSchema:
    """An Avro schema with its id (31 bits, positive) and the event type name it belongs to.

    ``registry`` is the address of the registry that gave the id, None where it is the fingerprint.

    Examples:
        >>> event_type_of(Order.Placed).registered.name
        'order.placed'
    """

    id: int
    name: str
    schema: Mapping[str, Any]
    registry: str | None = None

    @property
    def version(self) -> int:
        """The version of the event's class that wrote it, from 1 on."""
        return int(self.schema.get("version", 1))

    @cached_property
    def personal(self) -> Mapping[str, Mapping[str, Any]]:
        """The types of the personal fields: sealed bytes, with the clear type and the placeholder as properties."""
        types = {field["name"]: field["type"] for field in self.schema["fields"]}
        return {name: kind for name, kind in types.items() if is_sealed(kind)}

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> RegisteredSchema:
        """Give a record schema its fingerprint and its full name."""
        return cls(fingerprint(schema), f"{schema['namespace']}.{schema['name']}", schema)

    @classmethod
    def from_json(cls, payload: bytes) -> RegisteredSchema:
        """Read what `to_json` wrote, which is also the value of a record of the schemas topic. Raises NotFramedAvro."""
        try:
            return cls.from_values(json.loads(payload))
        except (ValueError, RecursionError) as error:
            raise _no_schema(repr(payload[:60])) from error

    @classmethod
    def from_values(cls, values: Any) -> RegisteredSchema:
        """Read the same as values of JSON. Raises NotFramedAvro."""
        try:
            schema = cls(values["id"], values["name"], values["schema"], values.get("registry"))
            if schema._is_sound():
                return schema
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise _no_schema(f"a {type(values).__name__}")

    def _is_sound(self) -> bool:
        """Whether everything has the type that readers take it for, and the JSON can be written."""
        fields = [(field["name"], field["type"]) for field in self.schema["fields"]]
        texts = [self.name, self.registry or "", *(name for name, _ in fields)]
        self.to_json()
        return (
            type(self.id) is int
            and self.id in _IDS
            and all(isinstance(text, str) for text in texts)
            and type(self.schema.get("version", 1)) is int
            and all(isinstance(kind.get("subject", ""), str) for _, kind in fields if is_sealed(kind))
        )

    def to_json(self) -> bytes:
        """Return UTF-8 JSON with the keys id, name and schema, and registry where one gave the id."""
        origin = {} if self.registry is None else {"registry": self.registry}
        return canonical({"id": self.id, "name": self.name, "schema": self.schema, **origin}).encode()


def _no_schema(text: str) -> NotFramedAvro:
    return NotFramedAvro(f"{text} is not a registered schema", remedy="keep foreign records out of the schemas topic")


def canonical(schema: Mapping[str, Any]) -> str:
    """Return the whole schema as JSON with sorted keys and no spaces.

    Avro's own parsing canonical form is not used: it drops logical types, so decimal(18, 4) and
    decimal(18, 2) would be one.
    """
    return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(schema: Mapping[str, Any]) -> int:
    """Return the first 31 bits of sha256 over the canonical schema.

    31 bits because readers on the JVM hold the id as a signed 32-bit number; among 1,000 schemas a
    collision has odds of 1 in 4,300.
    """
    digest = hashlib.sha256(canonical(schema).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def is_sealed(avro: Any) -> bool:
    """Say whether a field's type is that of a personal field: bytes that a key opens."""
    return isinstance(avro, Mapping) and "personal" in avro


class SchemaRegistry(Protocol):
    """A registry that checks schemas and gives them ids.

    Examples:
        >>> registry: SchemaRegistry = ConfluentRegistry(RegistrySettings(url="https://registry:8081"))
        >>> store = SqlEventStore("sqlite:///shop.db", registry=registry)
    """

    @property
    def address(self) -> str:
        """The registry's address. It is stored with every schema, and every reader of the schemas topic sees it."""

    def register(self, schemas: Sequence[RegisteredSchema]) -> list[RegisteredSchema]:
        """Store schemas, and return them in their order with the ids of this registry.

        Raises:
            SchemaIncompatible: The registry's rule forbids the schema.
            UnknownSchema: The schema is new, and may not be registered.
            RegistryUnreachable: The registry did not answer. SchemaError: it refused.
        """

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return one schema. Raises UnknownSchema if the id was never given, RegistryUnreachable, SchemaError."""


def check_same(stored: RegisteredSchema, offered: RegisteredSchema) -> None:
    """Raise SchemaError unless both are the same schema."""
    if canonical(stored.schema) != canonical(offered.schema):
        raise SchemaError(
            f"schema id {offered.id} of {offered.name} already belongs to another schema of {stored.name}",
            remedy=_remedy(stored, offered),
            place=offered.name,
            code="schema-conflict",
        )


def _remedy(stored: RegisteredSchema, offered: RegisteredSchema) -> str:
    if stored.registry is None and offered.registry is None:
        return "add a field with a default, or rename one: the fingerprint changes with the schema"
    return (
        f"have one registry, which never forgets, for all services of a Kafka cluster: "
        f"{stored.registry or 'a fingerprint'} had the id before {offered.registry or 'a fingerprint'}"
    )


def unknown_schema(schema_id: int, place: str) -> UnknownSchema:
    """Build the error for an id that is not registered here."""
    return UnknownSchema(
        f"schema id {schema_id} is not registered",
        remedy="wait until the schemas topic arrives, or check that the writer shares this registry",
        place=place,
    )
