"""`factfold schema asyncapi`: a service as an AsyncAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import eventstore
from eventstore import Aggregate
from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.definitions import load_definition, load_module
from factfold.cli.events.schema import app
from factfold.cli.events.store import MaybeStore, Source, existing_store
from factfold.cli.options import definition, option
from factfold.cli.show import Out, echo

__all__ = ["app"]


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
    definitions = [one for target in targets for one in _declared(target)]
    return on_demand.Service(
        aggregates=[one for one in definitions if isinstance(one, type) and issubclass(one, Aggregate)],
        subscriptions=[one for one in definitions if isinstance(one, eventstore.Subscription)],
        routed=[_routed(one) for one in definitions if isinstance(one, on_demand.Branches)],
        **own,
    )


def _declared(target: str) -> Iterator[Any]:
    """What a target names: one definition, or each that a module has under a name."""
    named = {"what": "definition", "example": "shop.orders:Order"}
    if ":" in target:
        definition = load_definition(target, object, **named)
        if not _is_described(definition):
            raise DeclarationError(
                f"{target!r} is a {type(definition).__name__}", remedy="name an aggregate, a subscription or branches"
            )
        yield definition
        return
    seen: set[int] = set()
    for definition in vars(load_module(target, target, **named)).values():
        if _is_described(definition) and id(definition) not in seen:
            seen.add(id(definition))
            yield definition


def _is_described(definition: object) -> bool:
    if isinstance(definition, type):
        return (
            issubclass(definition, Aggregate) and definition is not on_demand.Process and bool(definition.event_types)
        )
    return isinstance(definition, eventstore.Subscription | on_demand.Branches)


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
