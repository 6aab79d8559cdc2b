"""Schemas: the versions of each event type, what changed between them, their readers, and what is unreadable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from eventstore.errors import NotFound
from eventstore.schema_check import check_schemas
from factfold.console.definitions import ReadBy, readers_of, topics_of
from factfold.console.page import Page, Query
from factfold.console.pages.standing import SCHEMAS, STORE
from factfold.console.parts import Problem
from factfold.console.sources import Look
from factfold.discovery import Discovery

if TYPE_CHECKING:
    from eventstore.schema_check import SchemaCheck
    from eventstore.schema_registry import RegisteredSchema

Change = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class FieldLine:
    """A field of a schema."""

    name: str
    type: str
    personal: bool


@dataclass(frozen=True, slots=True)
class FieldChange:
    """What a version did to a field of the one before it."""

    change: Change
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class VersionLine:
    """One schema of a type; `reading` says how the current code reads its events."""

    id: int
    version: int
    fields: tuple[FieldLine, ...]
    changes: tuple[FieldChange, ...]
    reading: str
    problem: Problem | None
    registry: str | None


@dataclass(frozen=True, slots=True)
class TypeLine:
    """An event type: how many versions events of it were written by, its readers, and whether one is unreadable."""

    name: str
    versions: int
    readers: tuple[ReadBy, ...]
    broken: int


@dataclass(frozen=True, slots=True)
class TypeDetail:
    """The chosen type: its versions, the newest first."""

    name: str
    versions: tuple[VersionLine, ...]
    readers: tuple[ReadBy, ...]


@dataclass(frozen=True, slots=True)
class Schemas:
    """Every event type, and the chosen one; `new` are schemas of the code that no event was written by yet."""

    types: tuple[TypeLine, ...]
    detail: TypeDetail | None
    new: tuple[str, ...]
    problem: Problem | None


def schemas(look: Look, query: Query) -> Schemas:
    """Hold the schemas of the store against the declared aggregates. Raises NotFound for an unknown type."""
    look.start(SCHEMAS, STORE)
    part, definitions = look.part(SCHEMAS), look.definitions
    topics = topics_of(definitions, look.part(STORE).value)
    stored = part.value if part.value is not None else _declared_schemas(definitions)
    check = _check(definitions, stored)
    by_name: dict[str, list[RegisteredSchema]] = {}
    for schema in sorted(stored, key=lambda one: (one.name, one.version, one.id)):
        by_name.setdefault(schema.name, []).append(schema)
    lines = tuple(_line(definitions, topics, name, schemas, check) for name, schemas in by_name.items())
    lines = tuple(sorted(lines, key=lambda line: (-line.broken, line.name)))
    new = tuple(f"{schema.name}, version {schema.version}" for schema in check.new)
    return Schemas(lines, _detail(definitions, topics, by_name, check, query.get("type")), new, part.problem)


def _declared_schemas(definitions: Discovery) -> list[RegisteredSchema]:
    return [kind.registered for one in definitions.aggregates.values() for kind in one.event_types.values()]


def _check(definitions: Discovery, stored: Sequence[RegisteredSchema]) -> SchemaCheck:
    return check_schemas([*definitions.aggregates.values(), *definitions.processes.values()], stored)


def _line(
    definitions: Discovery,
    topics: Mapping[str, str],
    name: str,
    schemas: Sequence[RegisteredSchema],
    check: SchemaCheck,
) -> TypeLine:
    ids = {schema.id for schema in schemas}
    broken = len({finding.schema_id for finding in check.misfits if finding.schema_id in ids})
    return TypeLine(name, len(schemas), tuple(readers_of(definitions, topics, name)), broken)


def _detail(
    definitions: Discovery,
    topics: Mapping[str, str],
    by_name: Mapping[str, list[RegisteredSchema]],
    check: SchemaCheck,
    name: str | None,
) -> TypeDetail | None:
    if name is None:
        return None
    schemas = by_name.get(name)
    if schemas is None:
        raise NotFound(f"no event of type {name[:80]!r} has a schema here", remedy="choose a type of the list")
    pairs = zip([None, *schemas[:-1]], schemas, strict=True)
    versions = [_version(before, schema, check) for before, schema in pairs]
    return TypeDetail(name, tuple(reversed(versions)), tuple(readers_of(definitions, topics, name)))


def _version(before: RegisteredSchema | None, schema: RegisteredSchema, check: SchemaCheck) -> VersionLine:
    findings = [finding for finding in check.misfits if finding.schema_id == schema.id]
    problem = Problem(findings[0].problem, findings[0].remedy, findings[0].place) if findings else None
    changes = () if before is None else tuple(_changes(before, schema))
    return VersionLine(
        schema.id, schema.version, _fields(schema), changes, _reading(schema, check, broken=bool(findings)), problem,
        schema.registry,
    )  # fmt: skip


def _reading(schema: RegisteredSchema, check: SchemaCheck, *, broken: bool) -> str:
    if broken:
        return "broken"
    if schema.name.rpartition(".")[0] in check.passed_over:
        return "not declared here"
    return "by a function" if schema.id in {one.id for one in check.by_function} else "read"


def _fields(schema: RegisteredSchema) -> tuple[FieldLine, ...]:
    return tuple(
        FieldLine(one["name"], said(one["type"]), one["name"] in schema.personal) for one in schema.schema["fields"]
    )


def _changes(before: RegisteredSchema, after: RegisteredSchema) -> Iterator[FieldChange]:
    old = {field["name"]: field["type"] for field in before.schema["fields"]}
    new = {field["name"]: field["type"] for field in after.schema["fields"]}
    for name in {**old, **new}:
        if name not in old:
            yield FieldChange("added", name, None, said(new[name]))
        elif name not in new:
            yield FieldChange("removed", name, said(old[name]), None)
        elif old[name] != new[name]:
            yield FieldChange("changed", name, said(old[name]), said(new[name]))


def said(avro: Any) -> str:
    """Return an Avro type in a few words: `long`, `decimal(9, 2)`, `null or string`, `list of long`."""
    if isinstance(avro, list):
        return " or ".join(said(one) for one in avro)
    if not isinstance(avro, dict):
        return str(avro)
    if "personal" in avro:
        return f"personal {said(avro['personal'])}"
    logical = avro.get("logicalType")
    if logical == "decimal":
        return f"decimal({avro.get('precision')}, {avro.get('scale', 0)})"
    return str(logical) if logical else _composed(avro)


def _composed(avro: dict[str, Any]) -> str:
    kind = avro["type"]
    if "enum" in avro:
        return f"one of {', '.join(avro['enum'].values())}"
    if kind == "array":
        return f"list of {said(avro['items'])}"
    if kind == "map":
        return f"map of {said(avro['values'])}"
    if kind == "record":
        return f"{avro['name']} ({', '.join(_named(field) for field in avro['fields'])})"
    return said(kind)


def _named(field: Mapping[str, Any]) -> str:
    return f"{field['name']} {said(field['type'])}"


PAGE: Final = Page("schemas", "Schemas", schemas)
