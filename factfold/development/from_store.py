"""A subscription that reads the event store of a SQLite file: a part of `factfold up` without servers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING, Any

from eventstore.backends.sql.source import StoreSource
from eventstore.delivery.subscriber import Subscriber
from eventstore.errors import DeclarationError
from factfold.cli.events.store import existing_store
from factfold.cli.events.subscriptions import load_subscription
from factfold.cli.keys import NamedKeys
from factfold.cli.running import log_to_stderr, stop_on_signal
from factfold.cli.show import ended
from factfold.discovery import Discovery, discovered
from projections import branch_source

if TYPE_CHECKING:
    from eventstore import SqlEventStore, Subscription


def source_of(store: SqlEventStore, discovery: Discovery, subscription: Subscription[..., Any]) -> StoreSource:
    """Return the store as the source of a subscription: a category's events, or those of a branch.

    Raises DeclarationError if the topic belongs to no aggregate and to no branches of the package.
    """
    topic = subscription.topic
    for branches in discovery.of("branches"):
        if topic in branches.value.topics.values():
            return branch_source(store, subscription, branches.value)
    for aggregate in discovery.of("aggregate"):
        category = aggregate.value.category
        if topic in (category, store.topics_of([category])[category]):
            return StoreSource(store, subscription, category=category)
    raise DeclarationError(
        f"topic {topic!r} of {subscription.name} is of no aggregate and no branches of package {discovery.targets[0]}",
        remedy="run it with Kafka, or subscribe to a topic of this service",
        place=subscription.name,
    )


def run(package: str, target: str, *, stop: Event) -> None:
    """Deliver a subscription's events from the store that FACTFOLD_STORE_URL names until ``stop`` is set."""
    subscription, settings = load_subscription(target), os.environ
    discovery = discovered(package)
    with existing_store(
        settings["FACTFOLD_STORE_URL"],
        settings.get("FACTFOLD_STORE_SCHEMA"),
        keys=NamedKeys(settings.get("FACTFOLD_MASTER_KEYS")).keys,
        source=settings.get("FACTFOLD_STORE_SOURCE"),
    ) as store:
        source = source_of(store, discovery, subscription)
        with Subscriber(subscription, source, engine=store.engine) as subscriber:
            sys.stdout.write("following\n")
            sys.stdout.flush()
            subscriber.run(stop=stop)


def main(arguments: Sequence[str]) -> int:
    """Run the subscription that ``arguments`` name, and return the exit code."""
    package, target = arguments
    log_to_stderr()
    return ended(lambda: run(package, target, stop=stop_on_signal()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
