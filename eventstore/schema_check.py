"""The code's events held against schemas that events were written by: what could not be read any more.

Schemas that are registered in a store or committed to a file are the promise, which classes and upcasters have to keep.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eventstore.aggregate import Aggregate
from eventstore.casting import can_cast, kind_of
from eventstore.errors import DeclarationError, InvalidEventData
from eventstore.event_types import EventType
from eventstore.field_types import Avro, Field
from eventstore.schema_registry import RegisteredSchema, canonical
from eventstore.upcasting import TypeMeaning


@dataclass(frozen=True, slots=True)
class Finding:
    """Why events of a kept schema could not be read; ``place`` is the event's type and field."""

    place: str
    schema_id: int
    problem: str
    remedy: str


@dataclass(frozen=True)
class SchemaCheck:
    """What the code does to kept schemas: what it breaks, what is new, and what functions decide at run time."""

    findings: Sequence[Finding]
    new: Sequence[RegisteredSchema]
    by_function: Sequence[RegisteredSchema]

    @property
    def passed(self) -> bool:
        """Whether everything that was written can be read."""
        return not self.findings


def check_schemas(aggregates: Iterable[type[Aggregate]], kept: Iterable[RegisteredSchema]) -> SchemaCheck:
    """Hold aggregates against the kept schemas of their categories; those of other categories are passed over."""
    owners = {aggregate.category: aggregate for aggregate in aggregates}
    known = list(kept)
    findings: list[Finding] = []
    by_function: list[RegisteredSchema] = []
    claimed = {name: kind for owner in owners.values() for name, kind in owner.stored_types().items()}
    for schema in known:
        kind = claimed.get(schema.name)
        if kind is None:
            findings += [_unclaimed(schema)] if schema.name.rpartition(".")[0] in owners else []
        elif not kind.upcasters.declared_from(schema.version):
            by_function.append(schema)
        else:
            findings += _misfits(kind, schema)
    kept_ones = {canonical(schema.schema) for schema in known}  # not ids: a registry has its own
    today = [kind.registered for owner in owners.values() for kind in owner.event_types.values()]
    return SchemaCheck(findings, [schema for schema in today if canonical(schema.schema) not in kept_ones], by_function)


def _unclaimed(schema: RegisteredSchema) -> Finding:
    return Finding(
        schema.name, schema.id, "no class claims the type",
        'keep the class, or let another have been stored as it: upcasters={1: [Retype("' + schema.name + '")]}',
    )  # fmt: skip


def _misfits(kind: EventType, schema: RegisteredSchema) -> list[Finding]:
    if schema.version > kind.version:
        problem = f"written in version {schema.version}, and the code knows versions up to {kind.version}"
        return [Finding(kind.name, schema.id, problem, "check the newer code")]
    written, today = _field_types(schema), _field_types(kind.registered)
    try:
        carried = kind.upcasters.interpret(schema.version, written, TypeMeaning())
    except InvalidEventData as error:
        return [Finding(f"{kind.name}.{error.place}", schema.id, error.message, error.remedy)]
    problems = ((field.name, _problem(field, carried, today)) for field in kind.fields)
    return [Finding(f"{kind.name}.{name}", schema.id, *problem) for name, problem in problems if problem is not None]


def _problem(field: Field, carried: Mapping[str, Avro], today: Mapping[str, Avro]) -> tuple[str, str] | None:
    """What is wrong with a field, and what to do about it."""
    if field.name not in carried:
        remedy = "give the field a default, or Rename it from another"
        return None if field.default is not None else ("it has no value there", remedy)
    source, target = carried[field.name], today[field.name]
    problem = _narrowed(source, target)
    if problem is None:
        return None
    castable = kind_of(source) != kind_of(target) and can_cast(source, target)
    otherwise = "upcast it by a function, or give it another name and a default"
    return problem, f'Cast("{field.name}", …)' if castable else otherwise


def _field_types(schema: RegisteredSchema) -> dict[str, Avro]:
    """The types of a schema's fields, records in full wherever they are only named."""
    named: dict[str, Any] = {}
    clear = {
        field["name"]: schema.personal.get(field["name"], {}).get("personal", field["type"])
        for field in schema.schema["fields"]
    }
    return {name: _expanded(avro, named) for name, avro in clear.items()}


def _expanded(avro: Any, named: dict[str, Any]) -> Any:
    if isinstance(avro, str):
        return named.get(avro, avro)
    if isinstance(avro, list):
        return [_expanded(member, named) for member in avro]
    parts = {part: _expanded(avro[part], named) for part in ("items", "values") if part in avro}
    if "fields" in avro:
        parts["fields"] = [{**field, "type": _expanded(field["type"], named)} for field in avro["fields"]]
        named[avro["name"]] = {**avro, **parts}
    return {**avro, **parts}


def _narrowed(source: Any, target: Any) -> str | None:
    """Say what of a type's values the other one cannot hold, None where it holds them all."""
    if source == target:
        return None
    ours, theirs = _members(target), _members(source)
    if "null" in theirs and "null" not in ours:
        return "it may be null there"
    for member in (member for member in theirs if member != "null"):
        differences = [_difference(member, own) for own in ours if own != "null"]
        if None not in differences:
            return differences[0]
    return None


def _members(avro: Any) -> list[Any]:
    return avro if isinstance(avro, list) else [avro]


def _difference(source: Any, target: Any) -> str | None:
    if kind_of(source) != kind_of(target):
        return f"it is {kind_of(source)} there, and {kind_of(target)} today"
    if isinstance(source, str) or isinstance(target, str):
        return None
    if kind_of(source) == "decimal":
        return _fewer_digits(source, target)
    if kind_of(source) == "record":
        return _records_differ(source, target)
    inner = "items" if "items" in source else "values"
    return _narrowed(source[inner], target[inner]) if inner in source else None


def _fewer_digits(source: Mapping[str, Any], target: Mapping[str, Any]) -> str | None:
    wide = (source["precision"] - source["scale"], source["scale"])
    own = (target["precision"] - target["scale"], target["scale"])
    if own[0] >= wide[0] and own[1] >= wide[1]:
        return None
    return f"it has {wide[0]} digits before the point and {wide[1]} after it there, {own[0]} and {own[1]} today"


def _records_differ(source: Mapping[str, Any], target: Mapping[str, Any]) -> str | None:
    theirs = {field["name"]: field["type"] for field in source["fields"]}
    for field in target["fields"]:
        if field["name"] in theirs and (problem := _narrowed(theirs[field["name"]], field["type"])) is not None:
            return f"in its field {field['name']}, {problem}"
    return None


def read_schemas(path: Path) -> list[RegisteredSchema]:
    """Read the schemas of a file that `write_schemas` made; DeclarationError where it is none."""
    try:
        found = json.loads(path.read_text("utf-8"))
        if not isinstance(found, list):
            raise TypeError("it is no list")
        return [RegisteredSchema(schema["id"], schema["name"], schema["schema"]) for schema in found]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DeclarationError(
            f"{path} holds no schemas: {error}",
            remedy="make it by `factfold schema write`, and commit it",
            place=str(path),
        ) from error


def write_schemas(path: Path, aggregates: Iterable[type[Aggregate]]) -> int:
    """Add today's schemas to a file, which keeps the ones it has; return how many are new."""
    kept = {schema.id: schema for schema in read_schemas(path)} if path.exists() else {}
    today = {k.schema_id: k.registered for owner in aggregates for k in owner.event_types.values()}
    every = sorted((kept | today).values(), key=lambda schema: (schema.name, schema.version, schema.id))
    text = [{"id": schema.id, "name": schema.name, "schema": schema.schema} for schema in every]
    path.write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return len(today.keys() - kept.keys())
