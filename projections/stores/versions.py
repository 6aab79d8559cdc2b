"""Read your own writes: wait until a view has the event that a command led to.

    with AppliedVersions("postgresql+psycopg://shop@db/views", group="shop", table="orders") as orders:
        orders.wait_for("order-o1", version=3, timeout=5.0)

The state of a table that is folded from events has the version that each stream stands at, and moves with the views in
one transaction. So nothing but the views' database is asked: no Spark, no broker, no runner.
"""

from __future__ import annotations

import time
from typing import Final

import sqlalchemy as sa

from eventstore.closing import Closing
from eventstore.identifiers import StreamName
from projections.errors import InvalidDefinition, NotYetApplied
from projections.stores import runs
from projections.stores.layout import generation_name
from projections.stores.opening import open_table_store
from projections.stores.runs import RunState

# An indexed query of a row takes a millisecond; a batch takes a fifth of a second at least.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.2
_TIMEOUT: Final = 10.0


class AppliedVersions(Closing):
    """How far the streams of one table of a group are applied, for reading your own writes.

    Args:
        url: SQLAlchemy's URL of the views' database.
        group: The name of the group.
        table: The table's name in the group's views. It must be made by `Table.from_events`, with the aggregate's id as
            its key.

    Raises:
        InvalidDefinition: The table is another one, or a stream of another category. Raised by the methods.

    Examples:
        >>> applied.wait_for("order-o1", result.version, timeout=5)
    """

    def __init__(self, url: str, *, group: str, table: str) -> None:
        self._store = open_table_store(url)
        self._group = group
        self._table = table
        self._states: dict[int, sa.Table] = {}  # of the generation that serves, which is asked each time

    def version_of(self, stream: str) -> int | None:
        """Return a stream's version in the serving views, None if they have no event of it.

        Raises InvalidIdentifier, NoServingGeneration, InvalidDefinition or TableStoreUnavailable.
        """
        named = StreamName.parse(stream)
        with self._store.looking() as connection:
            serving = runs.serving_state(connection, self._group)
            state = self._state(connection, serving.run.generation)
            self._require_of(named, serving)
            version = connection.scalar(sa.select(state.c["_pos"]).where(state.c[state.columns.keys()[0]] == named.id))
        return None if version is None else int(version)

    def wait_for(self, stream: str, version: int, *, timeout: float = _TIMEOUT) -> int:
        """Wait until the views show a stream at a version or later, and return the version they show.

        Raises NotYetApplied after ``timeout`` seconds, with the version at that time. Raises the errors of
        `version_of`.
        """
        until, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while (current := self.version_of(stream)) is None or current < version:
            if (left := until - time.monotonic()) <= 0:
                place = f"table {self._table} of group {self._group}"
                raise _not_yet(stream, version, current, seconds=timeout, place=place)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return current

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

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


def _not_yet(stream: str, version: int, current: int | None, *, seconds: float, place: str) -> NotYetApplied:
    stands = "is not there yet" if current is None else f"stands at version {current}"
    error = NotYetApplied(
        f"{stream} {stands}, and did not reach version {version} within {seconds:g} s",
        remedy="check that the group's runner runs (factfold projections status), and its lag in its log or metrics",
        place=place,
    )
    error.version = current
    return error
