"""Commands that are sent later: rows of the store, written in the caller's transaction.

    schedule = Schedule(store)
    reminder = schedule.after(timedelta(hours=24)).send("o1", Order.remind)
    schedule.cancel(reminder)

A worker sends what is due: `factfold processes run`. It sends each command once, however often it is killed: the row
is deleted in the transaction that appends the command's events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from eventstore.aggregates.aggregate import command_name
from eventstore.aggregates.command_schemas import encode_arguments
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.process_rows import COMMAND, ProcessRows, Scheduled
from eventstore.backends.sql.store import SqlEventStore
from eventstore.fields.conversions import aware_utc, later, not_negative, utc_now
from eventstore.identifiers import StreamName
from eventstore.store import NO_METADATA, Metadata

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True)
class Schedule:
    """Commands to send later, in one store.

    Args:
        store: The store that holds the schedule and the aggregates.
        clock: Gives the current time.
        metadata: The conversation, cause and trace of the commands.
        connection: The caller's transaction. Use `within` instead.

    Examples:
        >>> Schedule(store).after(timedelta(days=3)).send("o1", Order.cancel, reason="not paid")
    """

    store: SqlEventStore
    clock: Callable[[], datetime] = utc_now
    metadata: Metadata = NO_METADATA
    connection: Connection | None = None

    def within(self, connection: Connection) -> Schedule:
        """Return a schedule whose rows are written in the caller's transaction, on the store's database."""
        return replace(self, connection=connection)

    def with_metadata(self, metadata: Metadata) -> Schedule:
        """Return a schedule whose commands carry a conversation, a cause and a trace."""
        return replace(self, metadata=metadata)

    def at(self, moment: datetime) -> Later:
        """Return a moment whose `send` schedules a command, for at once if it has passed. `expiring` bounds the wait.

        Raises InvalidEventData for a moment without a time zone.
        """
        return Later(self, aware_utc(moment))

    def after(self, delay: timedelta) -> Later:
        """Return the moment after a delay, as `at` does. Raises InvalidEventData for one below zero, or too long."""
        return Later(self, aware_utc(later(self.clock(), not_negative(delay, "a delay"))))

    def cancel(self, command_id: UUID) -> bool:
        """Cancel a command. Return whether it was still to be sent."""
        with self.database.writing() as tx:
            return ProcessRows(self.store.tables).remove(tx, [command_id]) > 0

    def pending(self, *, failed: bool = False, processes: bool = False, limit: int = 1000) -> list[Scheduled]:
        """Return the commands that are still to be sent. Those that were set aside come first.

        A command that was set aside has no `due`, and `error` says why.

        Args:
            failed: Only those that failed or were set aside.
            processes: Also those that processes send, which `Processes` retries and cancels.
            limit: The number of commands at most.
        """
        rows = ProcessRows(self.store.tables)
        with self.database.statement() as reading:
            return rows.commands(reading, failed=failed, processes=processes, limit=limit)

    def retry(self, command_id: UUID) -> bool:
        """Send a failed command at once. Return whether there was one with this id."""
        with self.database.writing() as tx:
            return ProcessRows(self.store.tables).again_alone(tx, command_id, now=self.clock()) > 0

    @property
    def database(self) -> Database:
        """The store's database, in the caller's transaction if there is one."""
        database = Database(self.store.engine, self.store.tables)
        return database if self.connection is None else database.within(self.connection)


@dataclass(frozen=True)
class Later:
    """A moment at which a command is to be sent.

    Examples:
        >>> later = Schedule(store).after(timedelta(hours=24))
        >>> command_id = later.send("o1", Order.cancel, reason="forgotten")
    """

    schedule: Schedule
    due: datetime
    expires: datetime | None = None

    def expiring(self, after: timedelta) -> Later:
        """Send it within this time after it is due, or never. Raises InvalidEventData as `after`."""
        return replace(self, expires=later(self.due, not_negative(after, "the time after which a command expires")))

    def send(self, aggregate_id: str, command: Callable[..., object], /, *args: Any, **kwargs: Any) -> UUID:
        """Schedule a command, and return its id. Raises InvalidEventData, InvalidIdentifier or DeclarationError."""
        name = command_name(command)
        StreamName(name.partition(".")[0], aggregate_id)
        command_id = uuid4()
        row = Scheduled(
            id=command_id,
            due=self.due,
            kind=COMMAND,
            name=name,
            target=aggregate_id,
            arguments=encode_arguments(command, args, kwargs),
            expires=self.expires,
            set_at=self.schedule.clock(),
            **asdict(self.schedule.metadata),
        )
        with self.schedule.database.writing() as tx:
            ProcessRows(self.schedule.store.tables).schedule(tx, [row])
        return command_id
