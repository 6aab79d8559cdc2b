"""Topics of a service with their partitions and policies, and the connectors that fill them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.connectors.outbox import OutboxSource
from cdc.operating.control import TIMEOUT, apply, wait_for_worker
from cdc.operating.planning import plan
from cdc.operating.topics import require_own_topics, stores_of, topic_specs
from cdc.preparing.steps import Step

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient
    from cdc.connectors.base import Connector
    from eventstore.settings import Settings
    from eventstore.topics import TopicSpec


class Topics(Step):
    """The topics of a connector: those it names, and for an outbox those of the store's categories."""

    name = "topics"

    def __init__(self, connector: Connector, *, settings: Settings, source: Engine | None) -> None:
        self.target = connector.name
        self._connector, self._settings, self._source = connector, settings, source

    def look(self) -> str:
        """See `Step`."""
        from eventstore.kafka.admin import compare_topics  # needs the extra kafka

        if self._source is not None:
            require_own_topics(self._settings, self._connector, self._source)
        compared = compare_topics(self._settings, self._specs())
        for mismatch in compared.mismatches:
            raise mismatch
        return ", ".join(compared.missing)

    def make(self) -> None:
        """See `Step`."""
        from eventstore.kafka.admin import ensure_topics  # needs the extra kafka

        ensure_topics(self._settings, self._specs())

    def _specs(self) -> list[TopicSpec]:
        if self._source is None or not isinstance(self._connector, OutboxSource):
            return list(self._connector.topic_specs)
        categories = (one for store in stores_of(self._source, self._connector) for one in store.categories())
        return topic_specs((one.topic, one.partitions) for one in categories)


class RunningConnector(Step):
    """A connector as it is declared, running and streaming."""

    name = "connector"

    def __init__(
        self,
        connector: Connector,
        *,
        worker: ConnectClient,
        settings: Settings,
        source: Engine | None,
        timeout: float = TIMEOUT,
    ) -> None:
        self.target = connector.name
        self._connector, self._worker, self._settings = connector, worker, settings
        self._source, self._timeout = source, timeout

    def look(self) -> str:
        """See `Step`."""
        wait_for_worker(self._worker, timeout=self._timeout)
        planned, *_ = plan(self._worker, [self._connector])
        return "" if planned.is_no_op else _ACTIONS[planned.action]

    def make(self) -> None:
        """See `Step`."""
        apply(self._worker, self._connector, source=self._source, settings=self._settings, timeout=self._timeout)


_ACTIONS = {
    "create": "a new connector",
    "change": "another configuration",
    "restart": "a restart, because it FAILED",
    "resume": "to go on, because it is paused or stopped",
}
