"""The tables and columns that a query reads, asked of Spark itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from projections.errors import InvalidDefinition
from projections.planning.plans import analysed_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RELATION = re.compile(r"^[\s:+|-]*'UnresolvedRelation \[(.*)\], \[", re.MULTILINE)


def require_only(
    session: SparkSession, text: str, *, tables: Collection[str], queries: Collection[str], view: str
) -> None:
    """Refuse a text in which Spark reads other names than ``tables``, each once, and ``queries`` of WITH.

    What was read of the text when it was declared came from another parser, which may have taken a comment or a text
    to end elsewhere. Raises InvalidDefinition.
    """
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001 - it has no Python face
    counts = Counter(_RELATION.findall(plan.toString()))
    other = {name for name in counts if name not in tables and name.lower() not in queries}
    if other or any(counts[name] != 1 for name in tables):
        raise InvalidDefinition(
            f"Spark reads {', '.join(sorted(other)) or 'fewer tables'} in the SQL of view {view!r}, which was read"
            " otherwise when it was declared",
            remedy="name each table alone in a FROM or JOIN, and end comments without a backslash",
            place=f"view {view}",
        )


def require_no_column(result: DataFrame, aliases: Collection[str], *, view: str) -> None:
    """Refuse a selection from rows that have a column of one of these names, each of which was taken for a result's.

    The columns of a view, of a subquery or of VALUES are known to Spark alone. Raises InvalidDefinition.
    """
    if not aliases:
        return
    plan = analysed_plan(result)
    selection = plan.one("plan") if plan.kind == "WithCTE" else plan
    if both := sorted({column.name.lower() for column in selection.children[0].output} & set(aliases)):
        query = view.removesuffix("_rows")
        raise InvalidDefinition(
            f"view {query!r} names {both[0]!r}, which is a column and a result",
            remedy=f"give the result another name than {both[0]}, or write the column with its table, t.{both[0]}",
            place=f"view {query}",
        )
