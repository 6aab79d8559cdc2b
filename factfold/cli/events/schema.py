"""`factfold schema`: check, write, register, and asyncapi for a service as an AsyncAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import eventstore
from eventstore import Aggregate
from eventstore.errors import DeclarationError
from eventstore.schema_check import check_schemas, read_schemas, write_schemas
from factfold import on_demand
from factfold.cli.definitions import find_definitions, load_aggregate
from factfold.cli.events.store import MaybeStore, Source, existing_store
from factfold.cli.options import Commands, chosen_by, definition, option, setting
from factfold.cli.show import Out, answer, echo

if TYPE_CHECKING:
    from eventstore.schema_check import SchemaCheck
    from eventstore.schema_registry import RegisteredSchema

app = Commands("Schemas: can the code read what was written?")

Aggregates = Annotated[
    list[str], definition("The aggregates, each as module:name.", "aggregate", metavar="MODULE:NAME")
]
SchemasFile = Annotated[Path, option("--file", "The committed schemas.")]

Registry = Annotated[
    str | None,
    setting(
        "--registry-url", "A Confluent-compatible registry. User and password come from the environment.", metavar="URL"
    ),
]


Against = Literal["file", "store", "registry"]
ComparedWith = Annotated[
    Against | None,
    option(
        "--against",
        "Where stored schemas are. Default: as --store-url or --registry-url says, else in the file.",
        callback=chosen_by({"database": "store", "registry": "registry"}, otherwise="file"),
    ),
]

_REMEDY = "add them by `factfold schema write`, and commit the file"


@app.command()
def check(
    aggregates: Aggregates,
    place: MaybeStore,
    out: Out,
    file: SchemasFile = Path("schemas.json"),
    against: ComparedWith = None,
    registry: Registry = None,
    strict: Annotated[bool, option("--strict", "Fail also if a schema is not stored yet.")] = False,
) -> None:
    """Show stored events that the code cannot read. Exit code 3 if there are any."""
    owners = _load(aggregates)
    if against == "registry":
        with _registry(registry) as asked:
            stored = asked.schemas(owner.category for owner in owners)
    else:
        stored = _registered(place) if against == "store" else read_schemas(file)
    result = check_schemas(owners, stored)
    passed = result.passed and not (strict and result.new)
    out.show({"passed": passed, **_facts(result)}, _found(result, strict=strict, in_file=against == "file"))
    answer(passed)


@app.command()
def write(aggregates: Aggregates, out: Out, file: SchemasFile = Path("schemas.json")) -> None:
    """Add the code's schemas to a file to commit. Schemas in the file stay."""
    added = write_schemas(file, _load(aggregates))
    out.show({"file": file, "added": added}, f"{file}: {added} schemas added")


@app.command()
def register(aggregates: Aggregates, out: Out, registry: Registry = None) -> None:
    """Register the code's schemas before deployment, for services that may not register.

    Exit code 1 if the registry refuses one.
    """
    kinds = [kind.registered for owner in _load(aggregates) for kind in owner.event_types.values()]
    with _registry(registry) as asked:
        registered = asked.register(kinds)
    out.show(
        [{"id": schema.id, "name": schema.name} for schema in registered],
        (f"{schema.name}, version {schema.version}: id {schema.id}" for schema in registered),
    )


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


def _registered(place: MaybeStore) -> list[RegisteredSchema]:
    if place.database is None:
        raise typer.BadParameter("give --store-url")
    with existing_store(place.database, place.schema) as opened:
        return opened.schemas()


def _facts(result: SchemaCheck) -> dict[str, object]:
    return {
        "misfits": result.misfits,
        "new": [schema.name for schema in result.new],
        "by_function": [schema.id for schema in result.by_function],
        "passed_over": result.passed_over,
    }


def _found(result: SchemaCheck, *, strict: bool, in_file: bool) -> Iterator[str]:
    for finding in result.misfits:
        yield f"broken: {finding.place}, in events of schema {finding.schema_id}: {finding.problem}"
        yield f"  remedy: {finding.remedy}"
    for schema in result.by_function:
        yield f"not checked: schema {schema.id} of {schema.name}, which a function upcasts"
    for category in result.passed_over:
        yield f"not checked: category {category}, of which no aggregate was named"
    for schema in result.new:
        yield f"new: {schema.name}, version {schema.version}"
    yield "every event can be read" if result.passed else f"{len(result.misfits)} would break"
    if strict and result.new:
        yield f"{len(result.new)} not stored yet: {_REMEDY if in_file else 'register them first'}"


@app.command()
def asyncapi(
    targets: Annotated[
        list[str],
        definition(
            "Aggregates, subscriptions and branches, each as module:name. A module means all that it declares.",
            "aggregate", "subscription", "queue", "branches", metavar="TARGET"
        )
    ],
    store: MaybeStore,
    out: Out,
    title: Annotated[str | None, option("--title", "The service's name. Default: from the source.")] = None,
    version: Annotated[str, option("--version", "The version of the document.")] = "1.0.0",
    source: Source = None,
    servers: Annotated[
        list[str] | None, option("--server", "host:port of a Kafka broker to name. May be repeated.")
    ] = None,
) -> None:  # fmt: skip
    """Describe a service's topics, events, commands, branches and subscriptions as AsyncAPI 3.0, in YAML.

    With --store-url, topics and partitions are those of the store's categories.
    """
    named = source or on_demand.DEFAULT_SOURCE
    topics, partitions = ({}, {}) if store.database is None else _of_store(store.database, store.schema)
    own = {"title": title or named.rstrip("/").rpartition("/")[2], "version": version, "source": named}
    document = on_demand.asyncapi(
        _service(targets, own | {"topics": topics, "partitions": partitions, "servers": servers or ()})
    )
    if out.as_json:
        out.show(document, "", indent=2)
    else:
        echo(_yaml(document), nl=False)


def _service(targets: list[str], own: Mapping[str, Any]) -> on_demand.Service:
    found = find_definitions(targets)
    found.require_complete()
    return on_demand.Service(
        aggregates=list(found.aggregates.values()),
        subscriptions=list(found.subscriptions.values()),
        routed=[_routed(one) for one in found.branches.values()],
        **own,
    )


def _routed(branches: Any) -> on_demand.Routed:
    return on_demand.Routed(
        aggregate=branches.aggregate,
        topic=branches.topic,
        topics=branches.topics,
        predicates={name: str(predicate) for name, predicate in branches.predicates.items()},
        dead_letter_topic=branches.dead_letter_topic,
    )


def _of_store(database: str, schema: str | None) -> tuple[dict[str, str], dict[str, int]]:
    with existing_store(database, schema) as store:
        categories = store.categories()
    return {one.name: one.topic for one in categories}, {one.topic: one.partitions for one in categories}


def _yaml(document: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120))
