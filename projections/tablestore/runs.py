"""Runs: which generation serves, who may write it, and how far it has come.

The progress row is the one home of a run's offsets: it changes in the transaction that changes the views.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from projections.errors import NoServingGeneration, RunAlreadyActive, RunSuperseded

Progress = Mapping[str, Mapping[int, int]]

METADATA = sa.MetaData(schema="factfold")
RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("group_name", sa.Text, primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),  # building → serving → retired
    sa.Column("token", sa.Text),
    sa.Column("progress", JSONB),
    sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.func.now()),
)


@dataclass(frozen=True)
class Run:
    """One generation of one group, and the token of whoever writes it."""

    group: str
    generation: int
    fingerprint: str
    token: str | None = None

    @property
    def place(self) -> str:
        """How an error names it."""
        return f"projection group {self.group}, generation {self.generation}"


def create_runs_table(connection: sa.Connection) -> None:
    """Create our own schema and table where they are missing."""
    connection.execute(sa.schema.CreateSchema("factfold", if_not_exists=True))
    METADATA.create_all(connection, checkfirst=True)


def serving_run(connection: sa.Connection, group: str) -> Run:
    """The run whose views are served; raises NoServingGeneration."""
    query = sa.select(RUNS).where(RUNS.c.group_name == group, RUNS.c.status == "serving")
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NoServingGeneration(
            f"projection group {group!r} has not been built", remedy="run its rebuild first", place=group
        )
    return Run(group, row.generation, row.fingerprint)


def next_generation(connection: sa.Connection, group: str) -> int:
    """One more than the highest generation so far."""
    highest = connection.scalar(sa.select(sa.func.max(RUNS.c.generation)).where(RUNS.c.group_name == group))
    return int(highest or 0) + 1


def unfinished_generations(connection: sa.Connection, group: str) -> list[int]:
    """Generations whose rebuild never came to its end."""
    query = sa.select(RUNS.c.generation).where(RUNS.c.group_name == group, RUNS.c.status == "building")
    return list(connection.scalars(query))


def insert_run(connection: sa.Connection, run: Run) -> None:
    """Record a generation that is being built."""
    row = {"group_name": run.group, "generation": run.generation, "fingerprint": run.fingerprint}
    connection.execute(sa.insert(RUNS).values(**row, status="building", token=run.token))


def delete_run(connection: sa.Connection, run: Run) -> None:
    """Forget a generation."""
    connection.execute(sa.delete(RUNS).where(*_is(run)))


def set_status(connection: sa.Connection, run: Run, status: str) -> None:
    """Move a generation on: building, serving, retired."""
    connection.execute(sa.update(RUNS).where(*_is(run)).values(status=status, updated_at=sa.func.now()))


def lock(connection: sa.Connection, group: str) -> None:
    """Hold the group until ``unlock`` or the end of the connection, or raise RunAlreadyActive.

    A session-level advisory lock: a killed runner's connection ends with it, so that nothing has to be cleaned up.
    """
    if not connection.scalar(sa.select(sa.func.pg_try_advisory_lock(_lock_number(group)))):
        raise RunAlreadyActive(
            f"another runner holds projection group {group!r}",
            remedy="stop it first, or let it go on: one runner keeps a group's views",
            place=group,
        )


def unlock(connection: sa.Connection, group: str) -> None:
    """Let the group go at once: the server notices a closed connection only some time later."""
    try:
        connection.execute(sa.select(sa.func.pg_advisory_unlock(_lock_number(group))))
    except sa.exc.DBAPIError:
        connection.invalidate()  # the session is gone, and the lock with it


def _lock_number(group: str) -> int:
    return int.from_bytes(hashlib.sha256(f"factfold/{group}".encode()).digest()[:8], "big", signed=True)


def claim(connection: sa.Connection, run: Run) -> Run:
    """Put a new token on the run: whoever held the old one can no longer commit."""
    token = uuid.uuid4().hex
    connection.execute(sa.update(RUNS).where(*_is(run)).values(token=token))
    return Run(run.group, run.generation, run.fingerprint, token)


def read_progress(connection: sa.Connection, run: Run) -> Progress:
    """The next offset of every partition."""
    stored = connection.scalar(sa.select(RUNS.c.progress).where(*_is(run)))
    return decode_progress(stored or {})


def require_token(connection: sa.Connection, run: Run) -> None:
    """Raise RunSuperseded unless our token is still on the run; nobody can claim it before the transaction ends."""
    query = sa.select(RUNS.c.token).where(*_is(run)).with_for_update(read=True)
    if connection.scalar(query) != run.token:
        raise _superseded(run)


def _superseded(run: Run) -> RunSuperseded:
    return RunSuperseded(
        "another runner has moved this run on; nothing of this batch was written",
        remedy="stop one of the two runners",
        place=run.place,
    )


def advance(connection: sa.Connection, run: Run, start: Progress, end: Progress) -> None:
    """Lock the progress row, require our token and our start, and set the end.

    Raises RunSuperseded where either differs: then somebody else has applied this range.
    """
    query = sa.select(RUNS.c.token, RUNS.c.progress).where(*_is(run)).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None or row.token != run.token or filled(decode_progress(row.progress or {}), start) != start:
        raise _superseded(run)
    set_progress(connection, run, end)


def set_progress(connection: sa.Connection, run: Run, progress: Progress) -> None:
    """Write the progress of a run that nobody else writes."""
    encoded = {topic: {str(p): o for p, o in offsets.items()} for topic, offsets in progress.items()}
    connection.execute(sa.update(RUNS).where(*_is(run)).values(progress=encoded, updated_at=sa.func.now()))


def filled(stored: Progress, wanted: Progress) -> Progress:
    """Progress for every partition wanted: one the topic has grown since begins at 0."""
    return {t: {p: stored.get(t, {}).get(p, 0) for p in offsets} for t, offsets in wanted.items()}


def decode_progress(stored: Mapping[str, Mapping[str, int]]) -> Progress:
    """Progress as JSON keeps it (partitions are texts) in its own form."""
    return {topic: {int(p): int(o) for p, o in offsets.items()} for topic, offsets in stored.items()}


def _is(run: Run) -> tuple[sa.ColumnElement[bool], ...]:
    return RUNS.c.group_name == run.group, RUNS.c.generation == run.generation
