"""Tickets of customers in regions: events, and two changelogs in a chain. Importable by Spark's workers."""

from __future__ import annotations

from decimal import Decimal

import sqlalchemy as sa

from eventstore import Aggregate, command, event
from projections import ProjectionGroup, Table, on, view
from tests.integration.log_writer import LogWriter


class Ticket(Aggregate):
    """A ticket of at most one customer."""

    customer_id: int | None = None
    hours: Decimal = Decimal(0)
    status: str = "new"

    @event
    class Opened:
        customer_id: int | None
        hours: Decimal

    @event
    class Moved:
        customer_id: int | None

    @event
    class Closed:
        pass

    @command
    def open(self, *, customer_id: int | None, hours: Decimal) -> None:
        self.emit(self.Opened(customer_id=customer_id, hours=hours))

    def on_opened(self, e: Opened) -> None:
        self.customer_id, self.hours, self.status = e.customer_id, e.hours, "open"

    def on_moved(self, e: Moved) -> None:
        self.customer_id = e.customer_id

    def on_closed(self, e: Closed) -> None:
        self.status = "closed"


METADATA = sa.MetaData()
CUSTOMERS = sa.Table(
    "customers", METADATA, sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text),
    sa.Column("region_id", sa.Integer), sa.Column("note", sa.Text), sa.Column("since", sa.Date),
)  # fmt: skip
REGIONS = sa.Table(
    "regions", METADATA, sa.Column("id", sa.Integer, primary_key=True), sa.Column("title", sa.Text),
    sa.Column("rate", sa.Numeric(8, 2)), sa.Column("opened", sa.DateTime(timezone=True)),
)  # fmt: skip

DECLARED = {
    "customer_id": [on(Ticket.Opened).take("customer_id"), on(Ticket.Moved).take("customer_id")],
    "hours": on(Ticket.Opened).take("hours"),
    "status": [on(Ticket.Opened).set("open"), on(Ticket.Closed).set("closed")],
}


def ticket_group(writer: LogWriter) -> ProjectionGroup:
    """Two views over the writer's topics: an inner join down a chain, and a left join over the Python fold."""
    tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED, topic=writer.events_topic)
    evolved = Table.from_events(Ticket, key="ticket_id", topic=writer.events_topic)
    customers = Table.from_changelog(CUSTOMERS, topic=writer.changes_topics["customers"])
    regions = Table.from_changelog(REGIONS, topic=writer.changes_topics["regions"])

    @view(
        key="ticket_id",
        tables={"tickets": tickets, "customers": customers, "regions": regions},
    )
    def ticket_chain(tickets, customers, regions):
        buyers = customers.withColumnRenamed("id", "customer_id").withColumnRenamed("name", "customer")
        places = regions.withColumnRenamed("id", "region_id")
        joined = tickets.join(buyers, "customer_id").join(places, "region_id", "left")
        return joined.select("ticket_id", "customer", "note", "since", "title", "rate", "opened", "hours", "status")

    @view(
        key="ticket_id",
        tables={"evolved": evolved, "customers": customers},
    )
    def ticket_left(evolved, customers):
        buyers = customers.select(customers.id.alias("customer_id"), customers.name.alias("customer"))
        return evolved.join(buyers, "customer_id", "left").select("ticket_id", "customer", "hours", "status")

    return ProjectionGroup(f"tickets_{writer.events_topic.rpartition('.')[2]}", [ticket_chain, ticket_left])
