"""What the inboxes in a database know of events: which groups handled them, and which gave them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from sqlalchemy import MetaData, inspect, select

from eventstore.backends.sql.bound_values import bindable
from eventstore.backends.sql.transactions import transaction
from eventstore.backends.sql.utc_times import in_utc
from eventstore.inbox import inbox_table
from eventstore.inspection.tracing import Reaction

if TYPE_CHECKING:
    from sqlalchemy import Engine


class SqlInboxes:
    """The inbox table of a database, where there is one; nothing is made or changed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def reactions(self, ids: Sequence[UUID]) -> Mapping[UUID, Sequence[Reaction]]:
        """Return what became of events, one query for some hundred of them; StoreUnavailable."""
        table, reactions = inbox_table(MetaData()), dict[UUID, list[Reaction]]()
        columns = table.c
        with transaction(self._engine) as tx:
            for part in bindable(ids) if inspect(tx).has_table(table.name) else ():
                query = select(columns.event_id, columns.subscriber, columns.topic, columns.outcome, columns.time)
                for event_id, group, topic, outcome, time in tx.execute(query.where(columns.event_id.in_(part))):
                    reactions.setdefault(event_id, []).append(Reaction(group, topic, outcome, in_utc(time)))
        return reactions
