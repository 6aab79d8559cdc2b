"""Projection groups that cannot be built, for the command's errors."""

from __future__ import annotations

from projections import ProjectionGroup, Table, view
from tests.integration.tickets import DECLARED, Ticket

tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED, topic="no.such.topic")


@view(key="ticket_id")
def ticket_rows(tickets):
    """A view of a topic that does not exist."""
    return tickets


@view(key="ticket_id")
def misspelt(tickets):
    """A view that names a column that does not exist."""
    return tickets.select("ticket_id", "statsu")


missing_topic = ProjectionGroup("missing_topic", [ticket_rows])
unknown_column = ProjectionGroup("unknown_column", [misspelt])
