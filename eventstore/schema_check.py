"""The code's events held against schemas that events were written by: what could not be read any more.

Schemas that are registered in a store or committed to a file are the promise, which classes and upcasters have to keep.

One event type held against schemas that events were written by: what of them it could not read any more.

Casts and renames reach the fields of the event itself. Inside of these, in records, lists and dictionaries, a value is
read as it was written: there the types have to fit by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import DeclarationError, InvalidEventData, SchemaIncompatible
from eventstore.event_types import EventType
from eventstore.fields.conversions import ENUM, Avro, can_cast, enum_members, kind_of
from eventstore.fields.field_types import Field, FieldType
from eventstore.fields.upcasting import TypeMeaning
from eventstore.personal.sealing import Erased
from eventstore.schema_registry import RegisteredSchema, canonical


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why events of a stored schema cannot be read. ``place`` is the event's type and the path of the field."""

    place: str
    schema_id: int
    problem: str
    remedy: str


def require_readable(kinds: Iterable[EventType], stored: Iterable[RegisteredSchema]) -> None:
    """Raise SchemaIncompatible if a type with a new schema cannot read events of a stored one.

    Schemas of newer versions, and those that a function upcasts, are skipped: their result is unknown here.
    """
    known = list(stored)
    same = {canonical(schema.schema) for schema in known}  # not ids: a registry has its own
    for kind in kinds:
        if canonical(kind.schema) not in same:
            for schema in known:
                if schema.name in kind.stored_names and schema.version <= kind.version:
                    _require_fit(kind, schema)


def _require_fit(kind: EventType, schema: RegisteredSchema) -> None:
    if not kind.upcasters.declared_from(schema.version):
        return
    for misfit in misfits(kind, schema):
        step = (
            f"make it a new version, upcasters={{…, {kind.version}: […]}}: " if schema.version == kind.version else ""
        )
        raise SchemaIncompatible(
            f"{misfit.place} could not be read in events of schema {schema.id}, which is stored: {misfit.problem}",
            remedy=step + misfit.remedy,
            place=misfit.place,
            subject=kind.name,
        )


def misfits(kind: EventType, schema: RegisteredSchema) -> list[Misfit]:
    """Return what a type cannot read of events of a schema that declared changes alone carry to the current version."""
    if schema.version > kind.version:
        problem = f"written in version {schema.version}, and the code knows versions up to {kind.version}"
        return [Misfit(kind.name, schema.id, problem, "check the newer code")]
    try:
        carried = kind.upcasters.interpret(schema.version, _field_types(schema), TypeMeaning())
    except InvalidEventData as error:
        return [Misfit(f"{kind.name}.{error.place}", schema.id, error.message, error.remedy)]
    problems = [problem for field in kind.fields for problem in _problems(field, carried)]
    field_misfits = [Misfit(f"{kind.name}.{path}", schema.id, problem, remedy) for path, problem, remedy in problems]
    return [*field_misfits, *_erased_misfits(kind, schema)]


def dropped_fields(kind: EventType, schema: RegisteredSchema) -> list[str]:
    """Return the stored fields that no declared change carries on, and that the type does not have: they are not read.

    There are none that a function upcasts, or that do not fit.
    """
    if schema.version > kind.version or not kind.upcasters.declared_from(schema.version):
        return []
    try:
        carried = kind.upcasters.interpret(schema.version, _field_types(schema), TypeMeaning())
    except InvalidEventData:
        return []
    return sorted(carried.keys() - {field.name for field in kind.fields})


def _problems(field: Field, carried: Mapping[str, Avro]) -> Iterator[tuple[str, str, str]]:
    """What is wrong with a field, where within it, and what to do about it."""
    if field.name not in carried:
        if field.default is None:
            yield field.name, "it has no value there", "give the field a default, or Rename it from another"
        return
    source = carried[field.name]
    difference = _narrowed(source, field.type)
    if difference is not None:
        yield f"{field.name}{difference.path}", difference.problem, _remedy(field, source, difference)


def _remedy(field: Field, source: Avro, difference: _Difference) -> str:
    if difference.remedy:
        return difference.remedy
    if difference.path:
        return (
            f"give what is new in it a default, or upcast all of {field.name} by a function: no change reaches into it"
        )
    if kind_of(source) != kind_of(field.type.avro) and can_cast(source, field.type.avro):
        return f'Cast("{field.name}", …)'
    return "upcast it by a function, or give it another name and a default"


def _erased_misfits(kind: EventType, schema: RegisteredSchema) -> Iterator[Misfit]:
    """Fields that are no longer personal, and whose placeholders cannot be cast as their values are."""
    from eventstore.fields.serialization import placeholder  # fastavro is loaded with the first value

    for name, declared in schema.personal.items():
        try:
            kind.carried(schema.version, {name: Erased(placeholder(declared))})
        except InvalidEventData as error:
            remedy = "leave the field personal: then it shows today's placeholder"
            yield Misfit(error.place or kind.name, schema.id, f"once its person is erased, {error.message}", remedy)


@dataclass(frozen=True, slots=True)
class _Difference:
    """What a type cannot hold of another one; ``path`` leads there from the field: ``.number``, ``[]``, ``{}``."""

    problem: str
    path: str = ""
    remedy: str = ""

    def within(self, step: str) -> _Difference:
        return replace(self, path=step + self.path)


def _field_types(schema: RegisteredSchema) -> dict[str, Avro]:
    """The types of a schema's fields, clear ones of personal fields, records in full wherever they are only named."""
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


def _narrowed(source: Any, target: FieldType) -> _Difference | None:
    """Say what of a type's values the other one cannot hold, None where it holds them all."""
    theirs, ours = _members(source), _branches(target)
    if "null" in theirs and "null" not in _members(target.avro):
        return _Difference("it may be null there")
    values = [member for member in theirs if member != "null"]
    tagged = sum(kind_of(member) == "record" for member in values) > 1, sum(own.is_record for own in ours) > 1
    for member in values:
        if kind_of(member) == "record" and any(own.is_record for own in ours) and tagged[0] != tagged[1]:
            return _Difference("its records are distinguished by name on one side, and not on the other")
        differences = [_difference(member, own) for own in ours if not all(tagged) or own.may_be(member)]
        if not differences:
            return _Difference(f"it may be {member['name']} there")
        if None not in differences:
            return next((one for one in differences if one is not None and one.path), differences[0])
    return None


@dataclass(frozen=True, slots=True)
class _Branch:
    """One type that a current field holds, without null: its Avro form, and the compiled type with its parts."""

    avro: Any
    kind: FieldType

    @property
    def is_record(self) -> bool:
        return self.kind.record is not None

    def may_be(self, member: Any) -> bool:
        """Whether a member may be of this branch: of several records, one of its name."""
        return kind_of(member) != "record" or self.kind.record == member["name"]


def _branches(target: FieldType) -> list[_Branch]:
    held = [member for member in _members(target.avro) if member != "null"]
    kinds = target.inner if len(held) > 1 else (target,)
    return [_Branch(avro, kind) for avro, kind in zip(held, kinds, strict=True)]


def _members(avro: Any) -> list[Any]:
    return avro if isinstance(avro, list) else [avro]


def _difference(source: Any, own: _Branch) -> _Difference | None:
    kind = "record" if own.is_record else kind_of(own.avro)
    if kind_of(source) == "enum" and kind == "string":
        return None
    if kind_of(source) != kind:
        return _Difference(f"it is {kind_of(source)} there, and {kind} today")
    match kind:
        case "decimal":
            return _fewer_digits(source, own.avro)
        case "enum":
            return _other_members(source[ENUM], own.kind)
        case "record":
            return next(_records_differ(source, own.kind), None)
        case "array" | "map":
            part, step = ("items", "[]") if kind == "array" else ("values", "{}")
            difference = _narrowed(source[part], own.kind.inner[0])
            return None if difference is None else difference.within(step)
    return None


def _fewer_digits(source: Mapping[str, Any], target: Mapping[str, Any]) -> _Difference | None:
    wide = (source["precision"] - source["scale"], source["scale"])
    own = (target["precision"] - target["scale"], target["scale"])
    if own[0] >= wide[0] and own[1] >= wide[1]:
        return None
    return _Difference(
        f"it has {wide[0]} digits before the point and {wide[1]} after it there, {own[0]} and {own[1]} today"
    )


def _other_members(source: Mapping[str, str], target: FieldType) -> _Difference | None:
    """Say which text is no member any more, or another one than it was."""
    assert target.enum is not None  # noqa: S101 - an enum's type has its class
    names, members = target.enum.__members__, enum_members(target.enum)
    for name, text in source.items():
        if text not in members:
            problem = f"it may be {text!r} there, which no member of {target.enum.__qualname__} is today"
            return _Difference(problem, remedy=f"add the member back: {name or '…'} = {text!r}")
        if name in names and names[name] is not members[text]:
            problem = f"{text!r} is {name} there, and {members[text].name} today"
            return _Difference(problem, remedy="give each member the value it had, or upcast the field by a function")
    return None


def _records_differ(source: Mapping[str, Any], target: FieldType) -> Iterator[_Difference]:
    theirs = {field["name"]: field["type"] for field in source["fields"]}
    for field in target.fields:
        if field.name in theirs:
            difference = _narrowed(theirs[field.name], field.type)
        else:
            difference = _Difference("it has no value there") if field.default is None else None
        if difference is not None:
            yield difference.within(f".{field.name}")


@dataclass(frozen=True)
class SchemaCheck:
    """How the code fits stored schemas: what it breaks, what is new, and what functions decide at run time.

    ``passed_over`` names the categories of stored schemas without a given aggregate.
    """

    misfits: Sequence[Misfit]
    new: Sequence[RegisteredSchema]
    by_function: Sequence[RegisteredSchema]
    passed_over: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        """Whether everything that was written can be read."""
        return not self.misfits


def check_schemas(aggregates: Iterable[type[Aggregate]], stored: Iterable[RegisteredSchema]) -> SchemaCheck:
    """Compare aggregates with the stored schemas of their categories. Schemas of other categories are ignored.

    Examples:
        >>> list(check_schemas([Order], read_schemas(Path("schemas.json"))).misfits)
        []
    """
    owners = {aggregate.category: aggregate for aggregate in aggregates}
    known = list(stored)
    broken: list[Misfit] = []
    by_function: list[RegisteredSchema] = []
    claimed = {name: kind for owner in owners.values() for name, kind in owner.stored_types().items()}
    passed_over: set[str] = set()
    for schema in known:
        kind, category = claimed.get(schema.name), schema.name.rpartition(".")[0]
        if kind is None and category not in owners:
            passed_over.add(category)
        elif kind is None:
            broken.append(_unclaimed(schema))
        elif not kind.upcasters.declared_from(schema.version):
            by_function.append(schema)
        else:
            broken += misfits(kind, schema)
    known_forms = {canonical(schema.schema) for schema in known}  # not ids: a registry has its own
    today = [kind.registered for owner in owners.values() for kind in owner.event_types.values()]
    new = [schema for schema in today if canonical(schema.schema) not in known_forms]
    return SchemaCheck(broken, new, by_function, sorted(passed_over))


def _unclaimed(schema: RegisteredSchema) -> Misfit:
    return Misfit(
        schema.name, schema.id, "no class claims the type",
        'keep the class, or let another have been stored as it: upcasters={1: [Retype("' + schema.name + '")]}',
    )  # fmt: skip


def read_schemas(path: Path) -> list[RegisteredSchema]:
    """Read the schemas of a file that `factfold schema write` wrote. Raises DeclarationError for another file.

    Examples:
        >>> [schema.name for schema in read_schemas(Path("schemas.json"))]
        ['order.placed']
    """
    try:
        schemas = json.loads(path.read_text("utf-8"))
        if not isinstance(schemas, list):
            raise TypeError("it is no list")
        return [RegisteredSchema(schema["id"], schema["name"], schema["schema"]) for schema in schemas]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DeclarationError(
            f"{path} holds no schemas: {error}",
            remedy="make it by `factfold schema write MODULE:AGGREGATE`, and commit it",
            place=str(path),
        ) from error


def write_schemas(path: Path, aggregates: Iterable[type[Aggregate]]) -> int:
    """Add the current schemas to those in a file. Return how many are new.

    Examples:
        >>> write_schemas(Path("schemas.json"), [Order])
        1
    """
    stored = {schema.id: schema for schema in read_schemas(path)} if path.exists() else {}
    today = {k.schema_id: k.registered for owner in aggregates for k in owner.event_types.values()}
    every = sorted((stored | today).values(), key=lambda schema: (schema.name, schema.version, schema.id))
    text = [{"id": schema.id, "name": schema.name, "schema": schema.schema} for schema in every]
    path.write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return len(today.keys() - stored.keys())
