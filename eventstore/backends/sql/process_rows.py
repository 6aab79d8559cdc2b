"""The rows of processes: where each instance stands, and what is due. Every statement is about many instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from eventstore.backends.sql.dialect import transaction
from eventstore.backends.sql.models import Tables
from eventstore.backends.sql.values import bindable, in_utc, rows_in
from eventstore.backends.sql.ways import upsert, ways_of
from eventstore.inbox import inbox_table
from eventstore.inspection.tracing import Reaction
from eventstore.store import Metadata

# "process" as a number: advisory locks of others are made of other seeds.
_LOCKS: Final = 0x70726F63657373

COMMAND: Final = "command"
TIMER: Final = "timer"

Key = tuple[str, str]
"""A process and an instance."""


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """Where an instance stands: the version of its stream, the version of its code, its status."""

    process: str
    instance: str
    status: str
    version: int
    code: int
    problem: str
    started: datetime
    stepped: datetime

    @property
    def key(self) -> Key:
        """Process and instance."""
        return self.process, self.instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A command that is not sent yet, or a timer; without `due` it was set aside, and `error` says why.

    Of what is due at one moment, the `position` tells what was decided first. The store gives it.
    """

    id: UUID
    position: int = field(default=0, compare=False)
    due: datetime | None
    kind: str
    name: str
    target: str = ""
    arguments: str = "{}"
    expires: datetime | None = None
    process: str | None = None
    instance: str | None = None
    answered: bool = False
    attempts: int = 0
    error: str | None = None
    set_at: datetime
    correlation_id: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None

    @property
    def stream(self) -> str:
        """The stream that a command is sent to."""
        return f"{self.name.partition('.')[0]}-{self.target}"

    @property
    def key(self) -> Key | None:
        """Process and instance; None for a command that was scheduled without a process."""
        return None if self.process is None or self.instance is None else (self.process, self.instance)

    @property
    def metadata(self) -> Metadata:
        """The metadata of the command."""
        return Metadata(
            correlation_id=self.correlation_id, causation_id=self.causation_id, traceparent=self.traceparent
        )


class ProcessRows:
    """Statements on the two tables, in a transaction of the caller's."""

    def __init__(self, tables: Tables) -> None:
        self._instances, self._scheduled = tables.processes, tables.scheduled
        self._key = sa.tuple_(self._instances.c.process, self._instances.c.instance)
        self._owner = sa.tuple_(self._scheduled.c.process, self._scheduled.c.instance)

    def begin(self, tx: sa.Connection, rows: Sequence[InstanceRow]) -> None:
        """Insert rows of instances that are not there yet, in the order given."""
        if rows:
            tx.execute(upsert(tx, self._instances).on_conflict_do_nothing(), [asdict(row) for row in rows])

    def lock(self, tx: sa.Connection, keys: Iterable[Key]) -> dict[Key, InstanceRow]:
        """Lock instances, in the order of their keys: no two workers wait for each other. Return those that exist."""
        query = sa.select(self._instances).order_by(*self._key.clauses).with_for_update()
        return {row.key: row for row in map(_instance, rows_in(tx, query, self._key, sorted(keys)))}

    def save(self, tx: sa.Connection, rows: Sequence[InstanceRow]) -> None:
        """Store where instances stand now."""
        if not rows:
            return
        columns = self._instances.c
        own = sa.and_(columns.process == sa.bindparam("p"), columns.instance == sa.bindparam("i"))
        values = ("version", "code", "status", "problem", "started", "stepped")
        statement = sa.update(self._instances).where(own).values({name: sa.bindparam(f"new_{name}") for name in values})
        given = [
            {"p": row.process, "i": row.instance, **{f"new_{name}": getattr(row, name) for name in values}}
            for row in rows
        ]
        tx.execute(statement, given)

    def schedule(self, tx: sa.Connection, rows: Sequence[Scheduled]) -> None:
        """Store commands and timers, in their order; one that is there under its id already stays as it is."""
        if rows:
            given = [{name: value for name, value in asdict(row).items() if name != "position"} for row in rows]
            tx.execute(upsert(tx, self._scheduled).on_conflict_do_nothing(), given)

    def remove(self, tx: sa.Connection, ids: Sequence[UUID]) -> int:
        """Delete what is done, or taken back; returns how many there were."""
        return sum(
            tx.execute(sa.delete(self._scheduled).where(self._scheduled.c.id.in_(part))).rowcount
            for part in bindable(ids)
        )

    def withdraw(self, tx: sa.Connection, keys: Iterable[Key], *, kind: str) -> None:
        """Delete every command, or every timer, of instances."""
        for part in bindable(sorted(keys)):
            tx.execute(sa.delete(self._scheduled).where(self._owner.in_(part), self._scheduled.c.kind == kind))

    def cancel(self, tx: sa.Connection, timers: Iterable[tuple[str, str, str]]) -> None:
        """Delete timers by process, instance and name."""
        columns = self._scheduled.c
        named = sa.tuple_(columns.process, columns.instance, columns.name)
        for part in bindable(sorted(timers)):
            tx.execute(sa.delete(self._scheduled).where(named.in_(part), columns.kind == TIMER))

    def claim(self, tx: sa.Connection, processes: Sequence[str], *, now: datetime, limit: int) -> list[Scheduled]:
        """Lock instances of processes for which something is due, the first due first, and return what is due of each.

        Of many rows each instance has its first ones before another has its second. Instances that another worker holds
        are passed over. What is due is read after the locks are held, since until then it may have been taken back.
        """
        columns, instances = self._scheduled.c, self._instances.c
        is_due = sa.and_(columns.due <= now, columns.process.in_(processes))
        owner, first = (columns.process, columns.instance), (sa.func.min(columns.due), sa.func.min(columns.position))
        moments = sa.select(*owner, first[0].label("due"), first[1].label("at")).where(is_due)
        firsts = moments.group_by(*owner).subquery()
        own = sa.and_(firsts.c.process == instances.process, firsts.c.instance == instances.instance)
        locking = sa.select(*self._key.clauses).join(firsts, own).order_by(firsts.c.due, firsts.c.at).limit(limit)
        keys = [tuple(row) for row in tx.execute(locking.with_for_update(of=self._instances, skip_locked=True))]
        nth = sa.func.row_number().over(partition_by=[*self._owner.clauses], order_by=[columns.due, columns.position])
        rows = list[Any]()
        for part in bindable(keys):
            ranked = sa.select(self._scheduled, nth.label("nth")).where(is_due, self._owner.in_(part)).subquery()
            rows += tx.execute(sa.select(ranked).order_by(ranked.c.nth, ranked.c.due, ranked.c.position).limit(limit))
        chosen = sorted(rows, key=lambda row: (row.nth, row.due, row.position))[:limit]
        return sorted(map(_scheduled, chosen), key=_in_order)

    def claim_alone(self, tx: sa.Connection, commands: Sequence[str], *, now: datetime, limit: int) -> list[Scheduled]:
        """Lock commands of these names that belong to no process and are due, the first due first.

        Those of other names are left to the workers that know them.
        """
        columns = self._scheduled.c
        due = sa.select(columns.id).where(columns.due <= now, columns.process.is_(None), columns.name.in_(commands))
        query = due.order_by(columns.due, columns.position).limit(limit).with_for_update(skip_locked=True)
        return self.due(tx, list(tx.execute(query).scalars()))

    def commands(self, tx: sa.Connection, *, failed: bool, processes: bool, limit: int) -> list[Scheduled]:
        """Return commands, of processes too or not, what was set aside first, then the first due first."""
        columns = self._scheduled.c
        query = sa.select(self._scheduled).where(columns.kind == COMMAND)
        if not processes:
            query = query.where(columns.process.is_(None))
        if failed:
            query = query.where(columns.error.is_not(None))
        return [*map(_scheduled, tx.execute(query.order_by(columns.due.nulls_first(), columns.position).limit(limit)))]

    def reserve(self, tx: sa.Connection, streams: Iterable[str]) -> set[str]:
        """Return those streams of commands that no other worker is writing to, until the end of the transaction.

        Two batches that wait for each other's streams would end in a deadlock. SQLite has one writer anyway.
        """
        requested = sorted(streams)
        return ways_of(tx).reserve(tx, requested, _LOCKS) if requested else set()

    def failed(self, tx: sa.Connection, row_id: UUID, *, due: datetime | None, error: str | None) -> None:
        """Note that what is due could not be done; without another due time it is set aside."""
        columns = self._scheduled.c
        noted = {"due": due, "error": error, "attempts": columns.attempts + (0 if error is None else 1)}
        tx.execute(sa.update(self._scheduled).where(columns.id == row_id).values(noted))

    def again(self, tx: sa.Connection, key: Key, *, now: datetime) -> int:
        """Make what failed or was set aside for an instance due now; returns how many."""
        columns = self._scheduled.c
        return self._again(tx, sa.and_(columns.process == key[0], columns.instance == key[1]), now)

    def again_alone(self, tx: sa.Connection, row_id: UUID, *, now: datetime) -> int:
        """Make a command that belongs to no process, and failed or was set aside, due now; returns how many."""
        columns = self._scheduled.c
        return self._again(tx, sa.and_(columns.id == row_id, columns.process.is_(None)), now)

    def _again(self, tx: sa.Connection, which: sa.ColumnElement[bool], now: datetime) -> int:
        failed = sa.and_(which, self._scheduled.c.error.is_not(None))
        return tx.execute(sa.update(self._scheduled).where(failed).values(due=now, error=None, attempts=0)).rowcount

    def next_due(self, tx: sa.Connection, processes: Sequence[str], commands: Sequence[str]) -> datetime | None:
        """Return when the next row of these processes is due, or the next of these commands without a process."""
        columns = self._scheduled.c
        own = columns.process.in_(processes) | (columns.process.is_(None) & columns.name.in_(commands))
        due: datetime | None = tx.execute(sa.select(sa.func.min(columns.due)).where(own)).scalar()
        return due

    def instances(
        self,
        tx: sa.Connection,
        *,
        process: str | None,
        limit: int,
        statuses: Sequence[str] = (),
        stuck: sa.ColumnElement[bool] | None = None,
        part: str = "",
        after: tuple[datetime, str] | None = None,
    ) -> list[InstanceRow]:
        """Return instances, those first that did not take a step for the longest time; `stuck` is of that method.

        Their ids have this part in them. They come after the instance of this id, which took its last step then.
        """
        columns = self._instances.c
        query = sa.select(self._instances).order_by(columns.stepped, columns.process, columns.instance).limit(limit)
        if process is not None:
            query = query.where(columns.process == process)
        if statuses:
            query = query.where(columns.status.in_(statuses))
        if stuck is not None:
            query = query.where(stuck)
        if part:
            query = query.where(columns.instance.contains(part, autoescape=True))
        if after is not None:
            later = sa.and_(columns.stepped == after[0], columns.instance > after[1])
            query = query.where(sa.or_(columns.stepped > after[0], later))
        return [_instance(row) for row in tx.execute(query)]

    def stuck(self, statuses: Sequence[str], *, since: datetime, now: datetime) -> sa.ColumnElement[bool]:
        """Build the condition for an instance that does not go on by itself.

        It has a problem; or something was set aside, or is overdue since a moment, whether the instance has ended or
        not; or it has one of these statuses, took no step since then, and no timer is still to come.
        """
        columns, due = self._instances.c, self._scheduled.c.due
        still = sa.and_(columns.status.in_(statuses), columns.stepped < since, ~self._has(due > now))
        return sa.or_(columns.problem != "", self._has(due.is_(None) | (due < since)), still)

    def _has(self, condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
        scheduled, instances = self._scheduled.c, self._instances.c
        own = sa.and_(scheduled.process == instances.process, scheduled.instance == instances.instance)
        return sa.select(scheduled.id).where(own, condition).correlate(self._instances).exists()

    def waiting(self, tx: sa.Connection, keys: Iterable[Key]) -> list[Scheduled]:
        """Return what is scheduled for instances, the first due first, what was set aside last."""
        query = sa.select(self._scheduled).order_by(self._scheduled.c.due.nulls_last(), self._scheduled.c.position)
        return list(map(_scheduled, rows_in(tx, query, self._owner, sorted(keys))))

    def counts(self, tx: sa.Connection, process: str | None = None) -> list[tuple[str, str, int, int]]:
        """Return process, status, how many instances, and how many of them with a problem."""
        columns = self._instances.c
        troubled = sa.func.sum(sa.func.sign(sa.func.length(columns.problem)))
        query = sa.select(columns.process, columns.status, sa.func.count(), troubled)
        if process is not None:
            query = query.where(columns.process == process)
        rows = tx.execute(query.group_by(columns.process, columns.status).order_by(columns.process, columns.status))
        return [(name, status, int(count), int(bad or 0)) for name, status, count, bad in rows]

    def due(self, tx: sa.Connection, ids: Sequence[UUID]) -> list[Scheduled]:
        """Return rows by their ids, the first due first, without what was set aside."""
        scheduled = map(_scheduled, rows_in(tx, sa.select(self._scheduled), self._scheduled.c.id, ids))
        return sorted((row for row in scheduled if row.due is not None), key=_in_order)


def _in_order(row: Scheduled) -> tuple[Any, int]:
    return row.due, row.position


_INSTANCE: Final = tuple(one.name for one in fields(InstanceRow))
_SCHEDULED: Final = tuple(one.name for one in fields(Scheduled))


def _instance(row: sa.Row[Any]) -> InstanceRow:
    return InstanceRow(**{name: getattr(row, name) for name in _INSTANCE})


def _scheduled(row: sa.Row[Any]) -> Scheduled:
    return Scheduled(**{name: getattr(row, name) for name in _SCHEDULED})


class SqlInboxes:
    """The inbox table of a database, where there is one; nothing is made or changed."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def reactions(self, ids: Sequence[UUID]) -> Mapping[UUID, Sequence[Reaction]]:
        """Return what became of events, one query for some hundred of them; StoreUnavailable."""
        table, reactions = inbox_table(sa.MetaData()), dict[UUID, list[Reaction]]()
        columns = table.c
        query = sa.select(columns.event_id, columns.subscriber, columns.topic, columns.outcome, columns.time)
        with transaction(self._engine) as tx:
            known = ids if sa.inspect(tx).has_table(table.name) else ()
            for event_id, group, topic, outcome, time in rows_in(tx, query, columns.event_id, known):
                reactions.setdefault(event_id, []).append(Reaction(group, topic, outcome, in_utc(time)))
        return reactions
