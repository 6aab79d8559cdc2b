"""Subscriptions and the subscriptions of processes: how far each is behind, as `subscriptions lag` prints it.

With Kafka a group's offsets say it, without Kafka the checkpoint that a subscriber of the store has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from eventstore.backends.sql.source import stored_lag
from eventstore.errors import FactfoldError
from eventstore.topics import retry_topic_of
from factfold import on_demand
from factfold.console.parts import Problem
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from eventstore import Subscription
    from eventstore.delivery.source import Lag


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """A subscription: what it reads, and how far it is behind; None where that is unknown, with the reason."""

    group: str
    name: str
    target: str
    guarantee: str
    topics: tuple[str, ...]
    reads: str
    shared: bool
    lag: Lag | None = None
    problem: Problem | None = None


def read_subscriptions(clients: Clients) -> tuple[SubscriptionState, ...]:
    """Return every declared subscription."""
    declared = clients.definitions.subscriptions
    states = _of_kafka(clients, declared) if clients.places.kafka else _of_store(clients, declared)
    for one in states:
        clients.trends.note(f"subscription {one.group}", None if one.lag is None else one.lag.seconds)
        clients.trends.note(f"subscription {one.group} waiting", None if one.lag is None else float(one.lag.records))
    return states


Declared = Mapping[str, "Subscription[..., Any]"]


def _of_kafka(clients: Clients, declared: Declared) -> tuple[SubscriptionState, ...]:
    existing = set(clients.offsets.names())
    chosen = {target: one.chosen(existing) for target, one in declared.items()}
    asked: dict[str, list[str]] = {}
    for target, one in declared.items():
        topics = [topic for topic in chosen[target] if topic in existing]
        retried = [retry_topic_of(topic, one.group) for topic in topics]
        asked.setdefault(one.group, []).extend([] if one.share else topics + [t for t in retried if t in existing])
    lags = on_demand.subscription_lags(clients.settings, asked)
    _note_handled(clients, asked, lags)
    return tuple(
        _state(target, one, chosen[target], lags[one.group], _missing(one, chosen[target], existing))
        for target, one in declared.items()
    )


def _note_handled(clients: Clients, asked: Mapping[str, list[str]], lags: Mapping[str, Lag]) -> None:
    """Note how many records each group has behind it: those of its topics without those that wait."""
    ends = clients.offsets.end_offsets({name for names in asked.values() for name in names})
    for group, names in asked.items():
        every = sum(end for name in names for end in ends[name].values())
        clients.trends.note(f"subscription {group} handled", float(every - lags[group].records))


def _missing(one: Subscription[..., Any], topics: Iterable[str], existing: set[str]) -> Problem | None:
    if one.share:
        return Problem("a queue has no offsets of its group", "look at its dead letters")
    missing = [topic for topic in topics if topic not in existing]
    if not missing:
        return None
    return Problem(f"topic {missing[0]} does not exist", "start what writes to it, or correct the subscription")


def _state(
    target: str, one: Subscription[..., Any], topics: Iterable[str], lag: Lag | None, problem: Problem | None
) -> SubscriptionState:
    return SubscriptionState(
        group=one.group, name=one.name, target=target, guarantee=one.guarantee, topics=tuple(topics), reads=one.reads,
        shared=one.share, lag=None if problem else lag, problem=problem,
    )  # fmt: skip


def _of_store(clients: Clients, declared: Declared) -> tuple[SubscriptionState, ...]:
    return tuple(_in_store(clients, target, one) for target, one in declared.items())


def _in_store(clients: Clients, target: str, one: Subscription[..., Any]) -> SubscriptionState:
    try:
        categories = _categories(clients, one)
        lag = stored_lag(clients.store, one.group, categories, engine=clients.database)
        return _state(target, one, categories.values(), lag, None)
    except FactfoldError as error:
        return _state(target, one, one.topics, None, Problem.of(error))


def _categories(clients: Clients, one: Subscription[..., Any]) -> dict[str, str]:
    """The category whose events a subscription takes, with the topic of each."""
    by_topic = {category.topic: category.name for category in clients.store.categories()}
    for branches in clients.definitions.branches.values():
        by_topic |= dict.fromkeys(branches.topics.values(), branches.aggregate.category)
    categories = {by_topic[topic]: topic for topic in one.chosen(by_topic) if topic in by_topic}
    if not categories:
        raise FactfoldError(
            f"no category of the event store is published as {one.reads}",
            remedy="append a first event, or set bootstrap_servers of [kafka] in factfold.toml",
        )
    return categories


SUBSCRIPTIONS: Final = Reading(read_subscriptions)
