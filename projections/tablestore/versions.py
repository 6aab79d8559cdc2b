"""The version that a stream stands at in the serving generation: one look-up of one row, without a lock."""

from __future__ import annotations

import sqlalchemy as sa

from projections.errors import InvalidDefinition
from projections.tablestore import runs
from projections.tablestore.layout import generation_name
from projections.tablestore.sql import SqlTableStore


class StateVersions:
    """The rows of one table of one group; which generation serves is asked each time."""

    def __init__(self, store: SqlTableStore, *, group: str, table: str) -> None:
        self._store = store
        self._group = group
        self._table = table
        self._states: dict[int, sa.Table] = {}

    def version_of(self, key: str) -> int | None:
        """The version of a key's row, a deleted one's too; None where there is none.

        NoServingGeneration, InvalidDefinition where the group has no such table, TableStoreUnavailable.
        """
        with self._store.looking() as connection:
            generation = runs.serving_state(connection, self._group).run.generation
            state = self._state(connection, generation)
            found = connection.scalar(sa.select(state.c["_pos"]).where(state.c[state.columns.keys()[0]] == key))
        return None if found is None else int(found)

    def _state(self, connection: sa.Connection, generation: int) -> sa.Table:
        if generation not in self._states:
            self._states = {generation: self._described(connection, generation)}
        return self._states[generation]

    def _described(self, connection: sa.Connection, generation: int) -> sa.Table:
        space, prefix = generation_name(self._group, generation), "state_"
        schema = space if self._store.dialect.has_schemas else None
        start = prefix if schema else f"{space}${prefix}"
        names = [n for n in sa.inspect(connection).get_table_names(schema=schema) if n.startswith(start)]
        if f"{start}{self._table}" not in names:
            raise InvalidDefinition(
                f"group {self._group!r} has no table {self._table!r}",
                remedy=f"its tables are: {', '.join(sorted(name.removeprefix(start) for name in names))}",
                place=f"{self._store.place}, generation {generation}",
            )
        return sa.Table(f"{start}{self._table}", sa.MetaData(schema=schema), autoload_with=connection)
