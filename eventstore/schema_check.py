"""The code's events held against schemas that events were written by: what could not be read any more.

Schemas that are registered in a store or committed to a file are the promise, which classes and upcasters have to keep.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eventstore.aggregates.aggregate import Aggregate
from eventstore.compatibility import Misfit, misfits
from eventstore.errors import DeclarationError
from eventstore.schema_registry import RegisteredSchema, canonical


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
