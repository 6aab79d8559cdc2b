"""Topics of an event store made before its connector writes to them, with their partitions fixed for life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.connectors.outbox import OutboxSource
from eventstore.topics import TopicSpec, event_topic, schemas_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Engine

    from cdc.connectors.base import Connector
    from eventstore import SqlEventStore
    from eventstore.settings import Settings


def prepare_topics(
    settings: Settings, categories: Iterable[tuple[str, int]] = (), *, stores: Iterable[SqlEventStore] = ()
) -> list[str]:
    """Create the schemas topic and the event topics that are missing, and check the others. Return the created ones.

    Args:
        settings: The settings of Kafka.
        categories: Further topics as (topic, partitions), whose records are not checked.
        stores: The stores that fill the topics of their categories.

    Raises:
        ForeignRecord: A topic ends with an event of another store.
        TopicMismatch: A topic has another partition count or policy.
        BrokerUnreachable: No broker answered. BrokerRefused: a broker refused.

    Examples:
        >>> prepare_topics(settings, stores=[store])
        ['factfold.schemas', 'shop.order']
    """
    from eventstore.kafka.admin import ensure_topics  # needs the extra kafka
    from eventstore.topic_owners import topic_owners  # needs the extra kafka

    every = list(stores)
    if every:
        topic_owners(settings, every).require_own()
    own = [(category.topic, category.partitions) for store in every for category in store.categories()]
    return ensure_topics(settings, topic_specs([*categories, *own]))


def topic_specs(categories: Iterable[tuple[str, int]]) -> list[TopicSpec]:
    """Describe the topics as they have to be, the schemas topic first."""
    return [schemas_topic(), *(event_topic(name, partitions=count) for name, count in categories)]


def stores_of(source: Engine, connector: OutboxSource) -> list[SqlEventStore]:
    """Return the event stores whose events an outbox publishes."""
    from eventstore import SqlEventStore  # SQLAlchemy is loaded when it is first used

    return [SqlEventStore(source, schema=table.schema) for table in connector.table_names if table.table == "events"]


def require_own_topics(settings: Settings, connector: Connector, source: Engine) -> None:
    """Raise ForeignRecord if a topic that an outbox would fill ends with an event of none of its stores."""
    from eventstore.topic_owners import topic_owners  # needs the extra kafka

    if isinstance(connector, OutboxSource):
        topic_owners(settings, stores_of(source, connector)).require_own()
