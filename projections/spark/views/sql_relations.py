"""The tables and columns that a query reads, asked of Spark itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from projections.errors import InvalidDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RELATION = re.compile(r"^[\s:+|-]*'UnresolvedRelation \[(.*)\], \[", re.MULTILINE)


def require_only(
    session: SparkSession, text: str, *, tables: Mapping[str, int], queries: Collection[str], view: str
) -> None:
    """Refuse a text in which Spark reads other names than ``tables``, each so many times, and ``queries`` of WITH.

    What was read of the text when it was declared came from another parser, which may have taken a comment or a text
    to end elsewhere. Raises InvalidDefinition.
    """
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001 - it has no Python face
    counts = Counter(_RELATION.findall(plan.toString()))
    other = {name for name in counts if name not in tables and name.lower() not in queries}
    if other or any(counts[name] != number for name, number in tables.items()):
        raise InvalidDefinition(
            f"Spark reads {', '.join(sorted(other)) or 'fewer tables'} in the SQL of view {view!r}, which was read"
            " otherwise when it was declared",
            remedy="name each table alone in a FROM or JOIN, and end comments without a backslash",
            place=f"view {view}",
        )
