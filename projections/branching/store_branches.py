"""A branch without a router: the embedded road, where a subscription reads the store itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from projections.declaring.branches import Branches
from projections.errors import InvalidDefinition

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore import SqlEventStore, Subscription
    from eventstore.backends.sql.source import StoreSource
    from eventstore.store import RecordedEvent


def branch_source(
    store: SqlEventStore, subscription: Subscription[..., Any], branches: Branches, *, engine: Engine | None = None
) -> StoreSource:
    """Return the store's events of one branch as a source for a Subscriber. Conditions are evaluated in Python.

    An event that cannot be tested, or of another service than a given source, becomes a dead letter of the
    subscription.

    Args:
        store: The store of the events.
        subscription: The subscription. Its topic names the branch.
        branches: The branches.
        engine: The handler's database, by default the store's.

    Raises:
        InvalidDefinition: No branch has the topic, or branches and subscription name different sources.

    Examples:
        >>> with Subscriber(review, branch_source(store, review, payment_branches), engine=store.engine) as subscriber:
        ...     subscriber.run(stop=stop)
    """
    from eventstore.backends.sql.source import StoreSource  # SQLAlchemy is loaded when it is first used

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
