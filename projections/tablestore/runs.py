"""Runs: which generation serves, who may write it, and how far it has come.

The progress row is the one home of a run's offsets: it changes in the transaction that changes the views.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from projections.errors import NoServingGeneration, RunSuperseded

Progress = Mapping[str, Mapping[int, int]]


def _runs_table(name: str, schema: str | None) -> sa.Table:
    return sa.Table(
        name,
        sa.MetaData(schema=schema),
        sa.Column("group_name", sa.Text, primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),  # building → serving → retired
        sa.Column("token", sa.Text),
        sa.Column("progress", sa.JSON().with_variant(JSONB(), "postgresql")),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.func.now()),
    )


_IN_A_SCHEMA, _BY_NAME = _runs_table("runs", "factfold"), _runs_table("factfold_runs", None)


def _runs(connection: sa.Connection) -> sa.Table:
    return _IN_A_SCHEMA if connection.dialect.name == "postgresql" else _BY_NAME


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
    """Create our own table, and its schema where there are schemas, unless they are there."""
    runs = _runs(connection)
    if runs.schema:
        connection.execute(sa.schema.CreateSchema(runs.schema, if_not_exists=True))
    runs.create(connection, checkfirst=True)


def serving_run(connection: sa.Connection, group: str) -> Run:
    """The run whose views are served; raises NoServingGeneration."""
    row = connection.execute(_with_status(connection, group, "serving")).one_or_none()
    if row is None:
        raise NoServingGeneration(
            f"projection group {group!r} has not been built", remedy="run its rebuild first", place=group
        )
    return Run(group, row.generation, row.fingerprint)


def next_generation(connection: sa.Connection, group: str) -> int:
    """One more than the highest generation so far."""
    runs = _runs(connection)
    highest = connection.scalar(sa.select(sa.func.max(runs.c.generation)).where(runs.c.group_name == group))
    return int(highest or 0) + 1


def generations(connection: sa.Connection, group: str, status: str) -> list[int]:
    """The generations of a group in a status: building (its rebuild never came to its end), serving, retired."""
    return [row.generation for row in connection.execute(_with_status(connection, group, status))]


def _with_status(connection: sa.Connection, group: str, status: str) -> sa.Select[Any]:
    runs = _runs(connection)
    return sa.select(runs).where(runs.c.group_name == group, runs.c.status == status)


def all_runs(connection: sa.Connection) -> list[dict[str, Any]]:
    """Every generation of every group, with its status and progress."""
    columns = _runs(connection).c
    query = sa.select(columns.group_name.label("group"), columns.generation, columns.status, columns.progress)
    return [dict(row) for row in connection.execute(query.order_by("group", "generation")).mappings()]


def insert_run(connection: sa.Connection, run: Run) -> None:
    """Record a generation that is being built."""
    row = {"group_name": run.group, "generation": run.generation, "fingerprint": run.fingerprint}
    connection.execute(sa.insert(_runs(connection)).values(**row, status="building", token=run.token))


def delete_run(connection: sa.Connection, run: Run) -> None:
    """Forget a generation."""
    runs = _runs(connection)
    connection.execute(sa.delete(runs).where(*_is(runs, run)))


def set_status(connection: sa.Connection, run: Run, status: str) -> None:
    """Move a generation on: building, serving, retired."""
    _update(connection, run, status=status, updated_at=sa.func.now())


def claim(connection: sa.Connection, run: Run) -> Run:
    """Put a new token on the run: whoever held the old one can no longer commit."""
    token = uuid.uuid4().hex
    _update(connection, run, token=token)
    return Run(run.group, run.generation, run.fingerprint, token)


def read_progress(connection: sa.Connection, run: Run) -> Progress:
    """The next offset of every partition."""
    runs = _runs(connection)
    stored = connection.scalar(sa.select(runs.c.progress).where(*_is(runs, run)))
    return decode_progress(stored or {})


def require_token(connection: sa.Connection, run: Run) -> None:
    """Raise RunSuperseded unless our token is still on the run; nobody can claim it before the transaction ends."""
    runs = _runs(connection)
    query = sa.select(runs.c.token).where(*_is(runs, run)).with_for_update(read=True)
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
    runs = _runs(connection)
    query = sa.select(runs.c.token, runs.c.progress).where(*_is(runs, run)).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None or row.token != run.token or filled(decode_progress(row.progress or {}), start) != start:
        raise _superseded(run)
    set_progress(connection, run, end)


def set_progress(connection: sa.Connection, run: Run, progress: Progress) -> None:
    """Write the progress of a run that nobody else writes."""
    encoded = {topic: {str(p): o for p, o in offsets.items()} for topic, offsets in progress.items()}
    _update(connection, run, progress=encoded, updated_at=sa.func.now())


def _update(connection: sa.Connection, run: Run, **values: Any) -> None:
    runs = _runs(connection)
    connection.execute(sa.update(runs).where(*_is(runs, run)).values(values))


def filled(stored: Progress, wanted: Progress) -> Progress:
    """Progress for every partition wanted: one the topic has grown since begins at 0."""
    return {t: {p: stored.get(t, {}).get(p, 0) for p in offsets} for t, offsets in wanted.items()}


def decode_progress(stored: Mapping[str, Mapping[str, int]]) -> Progress:
    """Progress as JSON keeps it (partitions are texts) in its own form."""
    return {topic: {int(p): int(o) for p, o in offsets.items()} for topic, offsets in stored.items()}


def _is(runs: sa.Table, run: Run) -> tuple[sa.ColumnElement[bool], ...]:
    return runs.c.group_name == run.group, runs.c.generation == run.generation
