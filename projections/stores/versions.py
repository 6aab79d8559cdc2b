"""The version that a stream stands at in the serving generation: one look-up of one row, without a lock."""

from __future__ import annotations

import sqlalchemy as sa

from eventstore.identifiers import StreamName
from projections.errors import InvalidDefinition
from projections.stores import runs
from projections.stores.layout import generation_name
from projections.stores.runs import RunState
from projections.stores.sql import TableStore


class StateVersions:
    """The rows of one table of one group; which generation serves is asked each time."""

    def __init__(self, store: TableStore, *, group: str, table: str) -> None:
        self._store = store
        self._group = group
        self._table = table
        self._states: dict[int, sa.Table] = {}

    def version_of(self, stream: StreamName) -> int | None:
        """The version of a stream's row, a deleted one's too; None where there is none.

        NoServingGeneration, InvalidDefinition where the group has no such table, or it is not of such streams,
        TableStoreUnavailable.
        """
        with self._store.looking() as connection:
            serving = runs.serving_state(connection, self._group)
            state = self._state(connection, serving.run.generation)
            self._require_of(stream, serving)
            version = connection.scalar(sa.select(state.c["_pos"]).where(state.c[state.columns.keys()[0]] == stream.id))
        return None if version is None else int(version)

    def _require_of(self, stream: StreamName, serving: RunState) -> None:
        """Another category's stream of the same id, or a row of a database, has positions too."""
        categories = serving.built.get("categories")  # an early release noted none
        if categories is None or categories.get(self._table) == stream.category:
            return
        others = sorted(table for table, category in categories.items() if category == stream.category)
        raise InvalidDefinition(
            f"table {self._table!r} of group {self._group!r} is not folded from streams of {stream.category!r}",
            remedy=f"give the table that is: {', '.join(others) or 'the group has none'}",
            place=serving.run.place,
        )

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
