"""`factfold schema`: check, write, register; in `service_schema`, asyncapi."""

from __future__ import annotations

import dataclasses
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import eventstore
from eventstore.errors import DeclarationError
from eventstore.schema_check import check_schemas, read_schemas, write_schemas
from factfold import on_demand
from factfold.cli.completions import completes
from factfold.cli.definitions import load_aggregate
from factfold.cli.events.logs_to_read import MaybeDatabase
from factfold.cli.events.store import Json, Schema, existing_store
from factfold.cli.given_options import chosen_by
from factfold.cli.shown_values import echo

if TYPE_CHECKING:
    from eventstore import Aggregate
    from eventstore.schema_check import SchemaCheck
    from eventstore.schema_registry import RegisteredSchema

app = typer.Typer(help="Schemas: can the code read what was written?", no_args_is_help=True)

Aggregates = Annotated[
    list[str],
    typer.Argument(
        help="The aggregates, each as module:name.", metavar="MODULE:NAME", autocompletion=completes("aggregate")
    ),
]
SchemasFile = Annotated[Path, typer.Option("--file", help="The committed schemas.")]

Registry = Annotated[
    str | None,
    typer.Option(
        "--registry-url",
        envvar="FACTFOLD_REGISTRY__URL",
        metavar="URL",
        help="A Confluent-compatible registry. User and password come from the environment.",
    ),
]


class Against(StrEnum):
    """What the code's schemas are compared with."""

    FILE = "file"
    STORE = "store"
    REGISTRY = "registry"


ComparedWith = Annotated[
    Against | None,
    typer.Option(
        "--against",
        callback=chosen_by({"store": Against.STORE, "registry": Against.REGISTRY}, otherwise=Against.FILE),
        help="Where stored schemas are. Default: as --store-url or --registry-url says, else in the file.",
    ),
]

_REMEDY = "add them by `factfold schema write`, and commit the file"


@app.command()
def check(
    aggregates: Aggregates,
    file: SchemasFile = Path("schemas.json"),
    against: ComparedWith = None,
    store: MaybeDatabase = None,
    schema: Schema = None,
    registry: Registry = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail also if a schema is not stored yet.")] = False,
    as_json: Json = False,
) -> None:
    """Show stored events that the code cannot read. Exit code 3 if there are any."""
    owners = _load(aggregates)
    if against is Against.REGISTRY:
        with _registry(registry) as asked:
            stored = asked.schemas(owner.category for owner in owners)
    else:
        stored = _registered(store, schema) if against is Against.STORE else read_schemas(file)
    result = check_schemas(owners, stored)
    from_file = against is Against.FILE
    passed = result.passed and not (strict and result.new)
    if as_json:
        echo(json.dumps({"passed": passed, **_facts(result)}))
    else:
        _tell(result)
        if strict and result.new:
            echo(f"{len(result.new)} not stored yet: {_REMEDY if from_file else 'register them first'}")
    raise typer.Exit(0 if passed else 3)


@app.command()
def write(aggregates: Aggregates, file: SchemasFile = Path("schemas.json"), as_json: Json = False) -> None:
    """Add the code's schemas to a file to commit. Schemas in the file stay."""
    added = write_schemas(file, _load(aggregates))
    echo(json.dumps({"file": str(file), "added": added}) if as_json else f"{file}: {added} schemas added")


@app.command()
def register(
    aggregates: Aggregates,
    registry: Registry = None,
    as_json: Json = False,
) -> None:
    """Register the code's schemas before deployment, for services that may not register.

    Exit code 1 if the registry refuses one.
    """
    kinds = [kind.registered for owner in _load(aggregates) for kind in owner.event_types.values()]
    with _registry(registry) as asked:
        registered = asked.register(kinds)
    if as_json:
        echo(json.dumps([{"id": schema.id, "name": schema.name} for schema in registered]))
        return
    for schema in registered:
        echo(f"{schema.name}, version {schema.version}: id {schema.id}")


def _registry(url: str | None) -> on_demand.ConfluentRegistry:
    """Open the registry of the environment, at an address that may be given instead."""
    given = {} if url is None else {"registry": {"url": url}}
    settings = eventstore.Settings(**given).registry  # user and password are added from the environment
    if settings is None:
        raise DeclarationError("no registry is named", remedy="say --registry-url URL, or set FACTFOLD_REGISTRY__URL")
    # The user of this command may register schemas, even if the services of this environment may not.
    return on_demand.ConfluentRegistry(settings.model_copy(update={"auto_register": True}))


def _load(specs: list[str]) -> list[type[Aggregate]]:
    return [load_aggregate(spec) for spec in specs]


def _registered(url: str | None, schema: str | None) -> list[RegisteredSchema]:
    if url is None:
        raise typer.BadParameter("give --store-url")
    with existing_store(url, schema) as opened:
        return opened.schemas()


def _facts(result: SchemaCheck) -> dict[str, object]:
    return {
        "misfits": [dataclasses.asdict(finding) for finding in result.misfits],
        "new": [schema.name for schema in result.new],
        "by_function": [schema.id for schema in result.by_function],
        "passed_over": list(result.passed_over),
    }


def _tell(result: SchemaCheck) -> None:
    for finding in result.misfits:
        echo(f"broken: {finding.place}, in events of schema {finding.schema_id}: {finding.problem}")
        echo(f"  remedy: {finding.remedy}")
    for schema in result.by_function:
        echo(f"not checked: schema {schema.id} of {schema.name}, which a function upcasts")
    for category in result.passed_over:
        echo(f"not checked: category {category}, of which no aggregate was named")
    for schema in result.new:
        echo(f"new: {schema.name}, version {schema.version}")
    echo("every event can be read" if result.passed else f"{len(result.misfits)} would break")
