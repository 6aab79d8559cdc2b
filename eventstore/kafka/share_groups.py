"""Settings of a share group, which its broker keeps: from where, what, for how long and how often it delivers."""

from __future__ import annotations

from typing import Final

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not marked so
    AdminClient,
    ResourceType,
)

from eventstore.delivery.subscriptions import MOST_DELIVERIES, Subscription
from eventstore.errors import SubscriptionError
from eventstore.kafka.admin import DEADLINE_SECONDS, configs_of, quiet, set_configs, typed_errors
from eventstore.settings import Settings

# What brokers allow for the lock of a record by default.
_SHORTEST_LOCK, _LONGEST_LOCK = 15.0, 60.0
_RESETS: Final = {"beginning": "earliest", "end": "latest"}


def lock_seconds(timeout: float) -> float:
    """Return how long a worker has a record: a call that begins within the first half ends within the second."""
    return min(_LONGEST_LOCK, max(_SHORTEST_LOCK, 2 * timeout))


def group_settings(subscription: Subscription[..., object]) -> dict[str, str]:
    """Return the settings that a queue needs: records of transactions that were aborted are no events.

    The broker's own limit of deliveries stays above that of the subscription: it drops a record without a trace.
    """
    return {
        "share.auto.offset.reset": _RESETS[str(subscription.start)],
        "share.isolation.level": "read_committed",
        "share.record.lock.duration.ms": str(int(lock_seconds(subscription.timeout) * 1000)),
        "share.delivery.count.limit": str(MOST_DELIVERIES),
    }


def prepare_group(settings: Settings, subscription: Subscription[..., object]) -> None:
    """Give a share group its settings, where it has others.

    SubscriptionError if the group is a consumer group; BrokerUnreachable, BrokerRefused.
    """
    admin, servers = AdminClient(quiet(settings.kafka)), settings.kafka.bootstrap_servers
    _require_no_consumers(admin, servers, subscription)
    group = subscription.group
    configs = configs_of(admin, ResourceType.GROUP, [group], servers, DEADLINE_SECONDS)[group]
    given = {name: entry.value for name, entry in configs.items()}
    others = {name: value for name, value in group_settings(subscription).items() if given.get(name) != value}
    if others:
        set_configs(admin, ResourceType.GROUP, group, others, servers, DEADLINE_SECONDS)


def _require_no_consumers(admin: AdminClient, servers: str, subscription: Subscription[..., object]) -> None:
    """A broker refuses a share group of such a name with words that say nothing of it."""
    asked = admin.describe_consumer_groups([subscription.group], request_timeout=DEADLINE_SECONDS)
    with typed_errors(servers):
        try:
            state = asked[subscription.group].result(DEADLINE_SECONDS + 1).state
        except KafkaException as error:
            if error.args[0].name() != "GROUP_ID_NOT_FOUND":
                raise
            return
    if state != ConsumerGroupState.DEAD:
        raise SubscriptionError(
            f"group {subscription.group!r} is a consumer group, and cannot be the share group of a queue",
            remedy="name another group, or delete this one: kafka-consumer-groups.sh --delete --group "
            f"{subscription.group}",
            place=subscription.name,
        )
