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

    The predicates are evaluated in Python; an event that they cannot be put to is a dead letter of the subscription.
    ``engine`` is that of the handler's database, the store's own by default. InvalidDefinition where the topic is none
    of the branches'.
    """
    from eventstore.backends.sql.source import StoreSource

    return StoreSource(
        store,
        subscription,
        category=branches.aggregate.category,
        branch=_chosen(store, branches, subscription.topic),
        engine=engine,
    )


def _chosen(store: SqlEventStore, branches: Branches, topic: str) -> Callable[[RecordedEvent], bool]:
    names = [name for name, of_branch in branches.topics.items() if of_branch == topic]
    if not names:
        raise InvalidDefinition(
            f"topic {topic!r} is no branch of {branches.topic!r}",
            remedy=f"subscribe to one of {', '.join(branches.topics.values())}",
            place=f"branches of {branches.topic}",
        )
    return lambda event: branches.branch_of(event, schema=store.schema(event.schema_id)) == names[0]
