"""A branch without a router: the embedded road, where a subscription reads the store itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from projections.branching.branches import Branches
from projections.errors import InvalidDefinition

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore import SqlEventStore, Subscription
    from eventstore.backends.sql.source import StoreSource
    from eventstore.messages import RecordedEvent


def branch_source(
    store: SqlEventStore, subscription: Subscription[..., Any], branches: Branches, *, engine: Engine | None = None
) -> StoreSource:
    """Read the store's events of the branch that the subscription's topic names, for a Subscriber.

    The predicates are evaluated in Python. An event that they cannot be put to is a dead letter of the subscription.
    With a source, an event of another service is one, too. ``engine`` is that of the handler's database, the store's
    own by default. Raises InvalidDefinition if the topic is none of the branches', or the two name different sources.
    """
    from eventstore.backends.sql.source import StoreSource

    return StoreSource(
        store,
        subscription,
        category=branches.aggregate.category,
        branch=_chosen(store, branches, subscription.topic),
        engine=engine,
        source=_source(subscription, branches),
    )


def _source(subscription: Subscription[..., Any], branches: Branches) -> str | None:
    sources = {one for one in (subscription.source, branches.source) if one is not None}
    if len(sources) > 1:
        raise InvalidDefinition(
            f"{subscription.name} takes events of {subscription.source!r}, its branches those of {branches.source!r}",
            remedy="give both one source, or the subscription none",
            place=f"branches of {branches.topic}",
        )
    return next(iter(sources), None)


def _chosen(store: SqlEventStore, branches: Branches, topic: str) -> Callable[[RecordedEvent], bool]:
    names = [name for name, of_branch in branches.topics.items() if of_branch == topic]
    if not names:
        raise InvalidDefinition(
            f"topic {topic!r} is no branch of {branches.topic!r}",
            remedy=f"subscribe to one of {', '.join(branches.topics.values())}",
            place=f"branches of {branches.topic}",
        )
    return lambda event: branches.branch_of(event, schema=store.schema(event.schema_id)) == names[0]
