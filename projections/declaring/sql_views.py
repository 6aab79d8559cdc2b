"""Views written in SQL: the tables, the key and the groups are read from the text, the foreign keys from Spark's plan.

The text is Spark's SQL. sqlglot (https://github.com/tobymao/sqlglot) reads it when the view is declared. Spark runs the
text itself over the slices or the whole tables: only the names of tables in it are replaced.
"""

from __future__ import annotations

import inspect
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from projections.declaring.binding import bind
from projections.declaring.finals import FinalResults
from projections.declaring.lakes import checked_lake
from projections.declaring.naming import checked_identifier
from projections.declaring.sql_queries import Query
from projections.declaring.sql_text import SqlText, parsed
from projections.declaring.timing.promises import Reach
from projections.declaring.view_topics import ViewTopic
from projections.declaring.views import (
    Columns,
    Declaration,
    InferredReferences,
    Input,
    Planned,
    Target,
    Targets,
    View,
    as_columns,
    key_of_partitions,
    pointers,
)
from projections.errors import InvalidDefinition
from projections.spark.views.sql_relations import require_only


def sql_view(
    name: str,
    text: str,
    *,
    tables: Mapping[str, Input],
    references: Mapping[Columns, Targets] | None = None,
    unmatched: Mapping[Columns, Target] | None = None,
    by: Columns | None = None,
    key: Columns | None = None,
    roots: Sequence[str] = (),
    topic: str | ViewTopic | None = None,
    lake: str | None = None,
    final: FinalResults | None = None,
    reach: Reach | None = None,
) -> View:
    """Declare a view by a query.

    A query that one view cannot keep up to date is cut into stages when Spark plans it. A stage is a view with
    ``_rows`` and a number behind the name of this one. The key follows from the plan. Columns of the key that the query
    does not select come behind its own. ``topic``, ``lake``, ``final`` and ``reach`` are as in `view`. With any other
    argument the query is one view, whose root is the first table of its outermost FROM. Raises InvalidDefinition or
    UnknownColumn.

    Args:
        tables: The tables and views, by their names in the query.
        references: Foreign keys, as `view` takes them. By default Spark's plan shows them.
        unmatched: Only for a RIGHT or FULL JOIN in a subquery. Others need the columns of the table's key in the
            result.
        by: The columns of a partition: the query sees one partition of all tables at a time.
        key: With ``by``, the columns that distinguish rows of a partition. Otherwise it may repeat the first table's.
        roots: Tables of one key, joined by it. A key has a row if any of them has one.

    Examples:
        >>> sql_view("named", "SELECT o.id, c.name FROM o LEFT JOIN c ON o.buyer = c.id", tables={"o": o, "c": c})
    """
    read, own = parsed(checked_identifier(name, what="view"), text), as_columns(key or ())
    known = _Known(references, unmatched, as_columns(by or ()), own, tuple(roots))
    if known != _Known():
        view = _of_text(Query(name, read, tables, known.roots), known)
    else:
        view = _planned(name, read, tables)
    return replace(view, topic=ViewTopic.of(topic), lake=checked_lake(lake), final=final, reach=reach)


def _planned(name: str, text: SqlText, tables: Mapping[str, Input]) -> View:
    """The view that a text shows, or one of which Spark's plan shows the key and the stages. InvalidDefinition."""
    try:
        view = _of_text(Query(name, text, tables), _Known())
    except InvalidDefinition:
        query = Query(name, text, tables, by_place=False)
        view = View(name, (), query.roles, InferredReferences(), SqlFunction(query))
    known = view.references if view.references_are_known else None
    return replace(view, declared=Planned(known, finds_key=True))


@dataclass(frozen=True)
class _Known:
    """What is said of a query besides its text."""

    references: Mapping[Columns, Targets] | None = None
    unmatched: Mapping[Columns, Target] | None = None
    by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()


def _of_text(query: Query, known: _Known) -> View:
    """The one view that a text shows: rows of its first table, or of partitions. Raises InvalidDefinition."""
    if known.key and not known.by:
        _require_key_of_first(query, known.key)
    groups = known.by or query.group_columns
    explicit = None if known.references is None else pointers(known.references)
    sides = query.unmatched() if known.unmatched is None and not known.by else known.unmatched or {}
    row_key = key_of_partitions(groups, known.key) or next(iter(query.roles.values())).key
    unmatched = {as_columns(columns): side for columns, side in sides.items()}
    declared = Declaration(query.name, row_key, explicit, unmatched, by=groups, roots=known.roots)
    return bind(declared, SqlFunction(query, row_key), query.roles)


def _require_key_of_first(query: Query, key: tuple[str, ...]) -> None:
    """Refuse a key, without partitions, that is not the one that the query has anyway."""
    first = next(iter(query.roles.values())).key
    if query.is_grouped or key != first:
        of = "its groups" if query.is_grouped else f"its first table, {', '.join(first)}"
        raise InvalidDefinition(
            f"view {query.name!r} names the key {', '.join(key)}, and has the key of {of}",
            remedy="leave key out. With by='…', key names the columns that distinguish rows of a partition",
            place=f"view {query.name}",
        )


def _with_names(result: Any, names: Sequence[str]) -> Any:
    """The result with the names of a key in the case that tables have them in: Spark takes any."""
    by_lower_case = {name.lower(): name for name in names}
    other = {c: by_lower_case[c.lower()] for c in result.columns if by_lower_case.get(c.lower(), c) != c}
    return result.withColumnsRenamed(other) if other else result


class SqlFunction:
    """A query as the function of a view: its arguments are DataFrames, in the order of the query's roles.

    Columns of the result whose names differ from one of ``names`` in case alone get that name.
    """

    def __init__(self, query: Query, names: Sequence[str] = ()) -> None:
        self._query, self._names = query, names
        self._is_known_to_spark = False
        self.signature = query.text.fingerprint
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(role, inspect.Parameter.POSITIONAL_OR_KEYWORD) for role in query.roles]
        )

    def __call__(self, *frames: Any) -> Any:
        """The query's result, as a DataFrame."""
        own = {role: f"factfold_{uuid.uuid4().hex}_{role}" for role in self._query.roles}
        text, session = self.over(own), frames[0].sparkSession
        if not self._is_known_to_spark:
            places = Counter(own[table.meta["role"]] for table in self._query.scopes.tables)
            require_only(session, text, tables=places, queries=self._query.scopes.queries, view=self._query.name)
        for name, frame in zip(own.values(), frames, strict=True):
            frame.createOrReplaceTempView(name)
        try:
            result = session.sql(text)
            self._is_known_to_spark = True
            return _with_names(result, self._names)
        finally:
            for name in own.values():
                session.catalog.dropTempView(name)

    def over(self, names: Mapping[str, str]) -> str:
        """The text with other names of its tables, by role, and otherwise as it was written."""
        return self._query.text.over(self._query.scopes.tables, names)
