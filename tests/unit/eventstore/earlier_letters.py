"""The table of dead letters as an earlier release made it: one row a group and event, whatever the topic."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import sqlalchemy as sa


def make(engine, *events):
    """Create it, with one dead letter of group `books` for each event."""
    earlier = sa.MetaData()
    table = sa.Table(
        "factfold_dead_letters",
        earlier,
        sa.Column("subscriber", sa.Text, primary_key=True),
        sa.Column("event_id", sa.Uuid, primary_key=True),
        sa.Column("topic", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("stream", "error", "message")),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
    )
    earlier.create_all(engine)
    with engine.begin() as tx:
        for event_id in events:
            tx.execute(sa.insert(table).values(event_id=event_id, **_told))


_told = {
    "subscriber": "books", "topic": "payment", "stream": "payment-9", "error": "ValueError", "message": "old",
    "version": 3, "attempts": 5, "time": datetime(2026, 1, 1, tzinfo=UTC),
}  # fmt: skip


def letters(engine):
    """Return (topic, event, version, message) of each dead letter, sorted."""
    with engine.connect() as connection:
        found = connection.execute(sa.text("select topic, event_id, version, message from factfold_dead_letters"))
        return sorted((topic, uuid.UUID(str(event)), *rest) for topic, event, *rest in found)


def assert_a_former_table_keeps_its_letters(engine, deliver):
    """Deliver beside a table of an earlier release: `deliver` gives up one event of the topic, and returns its id."""
    known = [uuid.uuid4(), uuid.uuid4()]
    make(engine, *known)
    given_up = deliver()
    assert letters(engine) == sorted(
        [*(("payment", one, 3, "old") for one in known), ("payment", given_up, 0, "below zero")]
    )
    assert sa.inspect(engine).get_table_names().count("factfold_dead_letters_former") == 0
    key = sa.inspect(engine).get_pk_constraint("factfold_dead_letters")["constrained_columns"]
    assert key == ["subscriber", "topic", "event_id"]
