"""A random history of payments and of their customers; the oracle reads what was sent, one record after another."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from eventstore.kafka.producer import OutgoingRecord
from projections.reference import newest_per_key, valid_at, versions_per_key
from tests.integration.log_writer import LogWriter
from tests.integration.payments import Payment

_MINUTES = range(12)  # few: payments and changes often fall on the same moment


def moment(minute: int) -> dt.datetime:
    """A time of the histories."""
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=minute)


def micros(minute: int) -> int:
    """The same in microseconds since 1970."""
    return int(moment(minute).timestamp()) * 1_000_000


@dataclass(frozen=True)
class Fact:
    """An event as the views should have it; minutes of its own time and of its record."""

    payment: str
    version: int
    customer: int | None
    recorded: int
    amount: Decimal | None = None
    paid: int = 0
    reason: str | None = None


class PaymentHistory:
    """All that happens, made beforehand; ``take`` gives it in one of the orders in which topics may arrive.

    Events come in any order, and so do the changes of different customers; a customer's own keep theirs, as in Kafka.
    """

    def __init__(self, writer: LogWriter, seed: int, *, payments: int = 30, customers: int = 8) -> None:
        self._writer, self._random, self._lsn = writer, random.Random(seed), 1_000
        self._facts = [fact for number in range(payments) for fact in self._payment(f"p{number}")]
        self._random.shuffle(self._facts)
        self._lives = [list(self._life(number)) for number in range(1, customers + 1)]
        self._happened: list[Fact] = []
        self._changes: list[OutgoingRecord] = []

    def take(self, count: int) -> list[OutgoingRecord]:
        """The records of the next things that happen; now and then one is sent a second time."""
        records: list[OutgoingRecord] = []
        while len(records) < count and (self._facts or any(self._lives)):
            records.append(self._next())
            if self._random.random() < 0.15:
                records.append(self._again())
        return records

    def _next(self) -> OutgoingRecord:
        waiting = [life for life in self._lives if life]
        if not waiting or (self._facts and self._random.random() < 0.4):
            self._happened.append(self._facts.pop())
            return self._record(self._happened[-1])
        self._changes.append(self._random.choice(waiting).pop(0))
        return self._changes[-1]

    def _again(self) -> OutgoingRecord:
        changes = [record for record in self._changes if record.value is not None]
        if not changes or (self._happened and self._random.random() < 0.5):
            return self._record(self._random.choice(self._happened))
        self._changes.append(self._random.choice(changes))
        return self._changes[-1]

    def _payment(self, identity: str) -> Iterator[Fact]:
        customer, amount = self._random.choice([None, *range(1, 11)]), Decimal(self._random.randint(1, 9_999)) / 100
        yield Fact(identity, 0, customer, self._minute(), amount, paid=self._minute())
        if self._random.random() < 0.3:
            yield Fact(identity, 1, None, self._minute(), reason=f"reason {self._random.randint(0, 9)}")

    def _record(self, fact: Fact) -> OutgoingRecord:
        event: object = Payment.Refused(reason=fact.reason or "")
        if fact.reason is None:
            event = Payment.Received(
                customer_id=fact.customer, amount=fact.amount or Decimal(0), paid_at=moment(fact.paid)
            )
        recorded = moment(fact.recorded).isoformat()
        return self._writer.event(fact.payment, event, version=fact.version, ce_time=recorded)

    def _life(self, customer: int) -> Iterator[OutgoingRecord]:
        """The changes of a customer, from a snapshot or a creation on; some clocks are set back in between."""
        times = [self._minute() for _ in range(self._random.randint(0, 6))]
        exists, restarted = False, self._random.random() < 0.2
        for number, minute in enumerate(sorted(times) if self._random.random() < 0.6 else times):
            if number == 0 and self._random.random() < 0.5:
                yield from self._snapshot(customer, minute, times=2 if restarted else 1)
                exists = True
            elif exists and self._random.random() < 0.3:
                yield self._change("d", {"id": customer}, minute)
                yield self._writer.tombstone("customers", customer)
                exists = False
            else:
                yield self._change("u" if exists else "c", self._row(customer, known=exists), minute)
                exists = True

    def _snapshot(self, customer: int, minute: int, *, times: int) -> Iterator[OutgoingRecord]:
        """A connector that is killed within its initial snapshot begins another one."""
        for again in range(times):
            row = self._row(customer, known=False)
            yield self._change("r", row, minute + again, snapshot=True)

    def _change(self, op: str, row: dict[str, Any], minute: int, *, snapshot: bool = False) -> OutgoingRecord:
        self._lsn += 10
        return self._writer.change("customers", op, row, lsn=self._lsn, snapshot=snapshot, ts_us=micros(minute))

    def _row(self, customer: int, *, known: bool) -> dict[str, Any]:
        note = self._random.choice([None, f"note {self._random.randint(0, 99)}"])
        if known and self._random.random() < 0.3:
            note = "__debezium_unavailable_value"
        score = self._random.choice([None, *range(300, 850, 50)])
        return {"id": customer, "credit_score": score, "note": note}

    def _minute(self) -> int:
        return self._random.choice(_MINUTES)

    def expected(self) -> dict[str, dict[str, tuple[Any, ...]]]:
        """The rows of each view without their key, after what has been taken."""
        records = [(number, (r.key or b"").decode(), r.value) for number, r in enumerate(self._changes)]
        versions, now = versions_per_key(records), newest_per_key(records)
        views: dict[str, dict[str, tuple[Any, ...]]] = {"risk_inner": {}, "entry_scores": {}}
        for fact in self._happened:
            key = json.dumps({"id": fact.customer})
            paid, recorded = (valid_at(versions.get(key, []), micros(m)) for m in (fact.paid, fact.recorded))
            if fact.version == 0 and paid:
                views["risk_inner"][fact.payment] = (fact.amount, paid["credit_score"], paid["note"])
            views["entry_scores"][f"{fact.payment}@{fact.version}"] = (
                fact.payment, fact.reason, recorded and recorded["credit_score"], now.get(key, {}).get("note"),
            )  # fmt: skip
        return views
