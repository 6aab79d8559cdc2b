"""The records that a run has set aside, stored with its state in the transaction that moves progress past them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from eventstore.backends.sql.ways import upsert
from eventstore.topics import DEAD_LETTER_MESSAGE_LENGTH
from projections.faults import TOO_LATE
from projections.logs.offsets import Offsets
from projections.logs.set_aside import FAULTS, SetAside
from projections.stores.layout import GenerationLayout


def ensure_set_aside(connection: sa.Connection, layout: GenerationLayout) -> None:
    """Make the table in a generation that was built before there was one."""
    layout.aside.create(connection, checkfirst=True)


def note_set_aside(connection: sa.Connection, layout: GenerationLayout, aside: SetAside) -> None:
    """Note records with their causes; one that is known already stays as it was noted first."""
    rows = [
        {"topic": fault.topic, "partition": fault.partition, "offset": fault.offset, "kind": fault.kind,
         "message": fault.error.message[:DEAD_LETTER_MESSAGE_LENGTH]}
        for fault in aside
    ]  # fmt: skip
    if rows:
        key = [column.name for column in layout.aside.primary_key]
        connection.execute(upsert(connection, layout.aside).on_conflict_do_nothing(index_elements=key), rows)


def note_late(connection: sa.Connection, layout: GenerationLayout) -> dict[str, int]:
    """Note the events that came late, which are staged; returns how many of each kind."""
    if layout.retained is None:
        return {}
    late, names = layout.retained.late, ["topic", "partition", "offset", "kind", "message"]
    key = [column.name for column in layout.aside.primary_key]
    # Without a condition SQLite's parser would take ON CONFLICT for that of a join.
    staged = sa.select(*(late.c[name] for name in names)).where(sa.true())
    noted = upsert(connection, layout.aside).from_select(names, staged)
    connection.execute(noted.on_conflict_do_nothing(index_elements=key))
    return {kind: count for kind, count in connection.execute(_by_kind(late))}


def _by_kind(late: sa.Table) -> sa.Select[str, int]:
    return sa.select(late.c.kind, sa.func.count()).group_by(late.c.kind)


def read_set_aside(connection: sa.Connection, layout: GenerationLayout, *, before: Offsets) -> SetAside:
    """The records noted below the given offsets; none in a generation that was built before there was a table.

    Those that came too late are not among them: their records say it to every fold, however many there are.
    """
    if not sa.inspect(connection).has_table(layout.aside.name, schema=layout.aside.schema):
        return SetAside.nothing()
    columns = layout.aside.c
    query = sa.select(columns.topic, columns.partition, columns.offset, columns.kind, columns.message)
    query = query.where(columns.kind != TOO_LATE)
    rows = [row for row in connection.execute(query) if row.offset < before.get(row.topic, {}).get(row.partition, 0)]
    return SetAside(pa.table(_columns(rows), schema=FAULTS))


def _columns(rows: list[Any]) -> dict[str, list[Any]]:
    return {name: [row[number] for row in rows] for number, name in enumerate(FAULTS.names)}
