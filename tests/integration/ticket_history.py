"""A random history of tickets, customers and regions; the oracle of the views is three dictionaries."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from eventstore.kafka.producer import OutgoingRecord
from projections import Environment, ProjectionGroup, rebuild
from tests.integration.log_writer import LogWriter
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group


def view_rows(env: Environment, name: str) -> dict[Any, tuple[Any, ...]]:
    """The rows of a view by their keys."""
    with env.store.transaction() as connection:
        return {row[0]: tuple(row[1:]) for row in connection.execute(sa.text(f"SELECT * FROM {name}"))}


def assert_views_as_expected(env: Environment, history: TicketHistory) -> None:
    """Both views show what the history comes to."""
    assert view_rows(env, "ticket_chain") == history.expected_chain()
    assert view_rows(env, "ticket_left") == history.expected_left()


def rebuilt_tickets(env: Environment) -> tuple[LogWriter, ProjectionGroup, TicketHistory]:
    """Views of tickets, rebuilt behind the first step of their history."""
    writer = LogWriter(env.log.settings, Ticket, CUSTOMERS, REGIONS)
    group, history = ticket_group(writer), TicketHistory(writer, 5)
    writer.send(history.step())
    rebuild(env, group)
    return writer, group, history


class TicketHistory:
    """Makes records step by step; ``tickets``, ``customers`` and ``regions`` are the truth after them.

    There are up to ``size`` customers and regions, and three times as many tickets. ``repeated`` is the share of steps
    after which earlier records come again.
    """

    def __init__(self, writer: LogWriter, seed: int, *, size: int = 8, repeated: float = 0.2) -> None:
        self._writer = writer
        self._ids, self._repetition = range(1, size + 1), repeated
        self._random = random.Random(seed)
        self._sent: list[OutgoingRecord] = []
        self._deleted: set[str] = set()
        self.tickets: dict[str, dict[str, Any]] = {}
        self.customers: dict[int, dict[str, Any]] = {}
        self.regions: dict[int, dict[str, Any]] = {}

    def step(self) -> list[OutgoingRecord]:
        """The records of one thing that happens; now and then some are sent that were sent before."""
        happening = self._random.choice([self._ticket, self._ticket, self._customer, self._customer, self._region])
        records = happening()
        self._sent += records
        if self._random.random() < self._repetition:
            records = records + self._repeated()
        return records

    def _repeated(self) -> list[OutgoingRecord]:
        """Records again, as an at-least-once producer would repeat them; no tombstones without cause."""
        again = [r for r in self._random.sample(self._sent, min(3, len(self._sent))) if r.value is not None]
        return sorted(again, key=self._sent.index)

    def _ticket(self) -> list[OutgoingRecord]:
        identity = f"t{self._random.randint(1, 3 * len(self._ids) + 1)}"
        customer = self._random.choice([None, *self._ids])
        if identity in self._deleted:
            return self._customer()
        known = self.tickets.get(identity)
        if known is not None and self._random.random() < 0.1:
            self._deleted.add(identity)
            del self.tickets[identity]
            return self._writer.deletion(identity)
        if known is None:
            hours = Decimal(self._random.randint(0, 9_999)) / 100
            self.tickets[identity] = {"customer_id": customer, "hours": hours, "status": "open"}
            return [self._writer.event(identity, Ticket.Opened(customer_id=customer, hours=hours))]
        if self._random.random() < 0.3:
            known["status"] = "closed"
            return [self._writer.event(identity, Ticket.Closed())]
        known["customer_id"] = customer
        return [self._writer.event(identity, Ticket.Moved(customer_id=customer))]

    def _customer(self) -> list[OutgoingRecord]:
        row = {
            "id": self._random.choice(self._ids), "name": f"name {self._random.randint(0, 99)}",
            "region_id": self._random.choice([None, *self._ids]),
            "note": self._random.choice([None, "ü, 'quoted'", "x" * 50]),
            "since": dt.date(2013, 1, self._random.randint(1, 28)),
        }  # fmt: skip
        sent = row | {"since": f"{row['since']}Z"}
        return self._change("customers", self.customers, row, sent)

    def _region(self) -> list[OutgoingRecord]:
        row = {
            "id": self._random.choice(self._ids), "title": f"title {self._random.randint(0, 99)}",
            "rate": self._random.choice([None, Decimal("12.34"), Decimal("-0.50")]),
            "opened": dt.datetime(2013, 5, 17, self._random.randint(0, 23), 30, 1, 250_000, tzinfo=dt.UTC),
        }  # fmt: skip
        rate = None if row["rate"] is None else str(row["rate"])
        sent = row | {"rate": rate, "opened": row["opened"].isoformat().replace("+00:00", "Z")}
        return self._change("regions", self.regions, row, sent)

    def _change(
        self, table: str, truth: dict[int, dict[str, Any]], row: dict[str, Any], sent: dict[str, Any]
    ) -> list[OutgoingRecord]:
        key, existed = row["id"], row["id"] in truth
        if existed and self._random.random() < 0.3:
            del truth[key]
            gone = [self._writer.change(table, "d", {"id": key}), self._writer.tombstone(table, key)]
            stale = self._writer.change(table, "r", sent, lsn=5, snapshot=True)
            return [*gone, stale] if self._random.random() < 0.5 else gone
        unavailable = existed and table == "customers" and self._random.random() < 0.3
        if unavailable:
            row = row | {"note": truth[key]["note"]}
            sent = sent | {"note": "__debezium_unavailable_value"}
        truth[key] = row
        return [self._writer.change(table, "u" if existed else "c", sent)]

    def expected_chain(self) -> dict[str, tuple[Any, ...]]:
        """The rows of ``ticket_chain`` without their key."""
        rows = {}
        for identity, ticket in self.tickets.items():
            customer = self.customers.get(ticket["customer_id"])
            if customer is None:
                continue
            region = self.regions.get(customer["region_id"], {})
            rows[identity] = (
                customer["name"], customer["note"], customer["since"], region.get("title"), region.get("rate"),
                region.get("opened"), ticket["hours"], ticket["status"],
            )  # fmt: skip
        return rows

    def expected_left(self) -> dict[str, tuple[Any, ...]]:
        """The rows of ``ticket_left`` without their key."""
        return {
            identity: (self.customers.get(t["customer_id"], {}).get("name"), t["hours"], t["status"])
            for identity, t in self.tickets.items()
        }
