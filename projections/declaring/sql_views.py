"""Views written in SQL: the tables, the key and the groups are read from the text, the foreign keys from Spark's plan.

The text is Spark's SQL. sqlglot (https://github.com/tobymao/sqlglot) reads it when the view is declared. Spark runs the
text itself over the slices or the whole tables: only the names of tables in it are replaced.
"""

from __future__ import annotations

import inspect
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from projections.declaring.binding import bind
from projections.declaring.finals import FinalResults
from projections.declaring.naming import checked_identifier
from projections.declaring.sql_queries import Query
from projections.declaring.timing.promises import Reach
from projections.declaring.view_topics import ViewTopic
from projections.declaring.views import Columns, Input, View, as_columns
from projections.spark.views.sql_relations import require_only


def sql_view(
    name: str,
    text: str,
    *,
    tables: Mapping[str, Input],
    by: Columns | None = None,
    key: Columns | None = None,
    topic: str | ViewTopic | None = None,
    lake: str | None = None,
    final: FinalResults | None = None,
    reach: Reach | None = None,
) -> View:
    """Declare a view by a query.

    Spark plans the query before it first runs. One that a single view cannot keep up to date is cut into stages. A
    stage is a view with ``_rows`` and a number behind the name of this one. The key follows from the plan. Columns of
    the key that the query does not select come behind its own. ``topic``, ``lake``, ``final`` and ``reach`` are as in
    `view`. Raises InvalidDefinition.

    Args:
        tables: The tables and views, by their names in the query.
        by: The columns of a partition: the query sees one partition of all tables at a time.
        key: With ``by``, the columns that distinguish rows of a partition. Otherwise it is the whole key.

    Examples:
        >>> sql_view("named", "SELECT o.id, c.name FROM o LEFT JOIN c ON o.buyer = c.id", tables={"o": o, "c": c})
    """
    query = Query(checked_identifier(name, what="view"), text, tables)
    partition, own = as_columns(by or ()), as_columns(key or ())
    function = SqlFunction(query, (*partition, *own))
    return bind(name, function, query.roles, key=own, by=partition, topic=topic, lake=lake, final=final, reach=reach)


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
        self.signature = query.fingerprint
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(role, inspect.Parameter.POSITIONAL_OR_KEYWORD) for role in query.roles]
        )

    def __call__(self, *frames: Any) -> Any:
        """The query's result, as a DataFrame."""
        own = {role: f"factfold_{uuid.uuid4().hex}_{role}" for role in self._query.roles}
        text, session = self._query.over(own), frames[0].sparkSession
        if not self._is_known_to_spark:
            places = Counter(own[table.meta["role"]] for table in self._query.places)
            require_only(session, text, tables=places, queries=self._query.queries, view=self._query.name)
        for name, frame in zip(own.values(), frames, strict=True):
            frame.createOrReplaceTempView(name)
        try:
            result = session.sql(text)
            self._is_known_to_spark = True
            return _with_names(result, self._names)
        finally:
            for name in own.values():
                session.catalog.dropTempView(name)
