"""What a plan does that no batch can answer, and sessions whose rows are not merged yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from projections.planning.plans import Node, operators

MARK: Final = "spark.sessionWindow"
"""In the metadata of the attribute that Spark makes of ``session_window``."""


class Untraceable(Exception):
    """What a plan does that a batch's slices may not answer, and what to write instead."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


def require_merged_sessions(plan: Node) -> None:
    """Refuse a session of which a value is read before its rows are grouped by it. Untraceable.

    Only an aggregate that groups by the session itself merges the windows of its rows. Anywhere else ``session_window``
    gives each row a window of its own, without an error.
    """
    open_ones, defined = set[int](), dict[int, tuple[Node, ...]]()
    for node in operators(plan):
        if node.kind == "CTERelationDef":
            defined[node.arguments["id"]] = node.output
        if node.kind == "CTERelationRef":  # a reference to itself comes before what it refers to
            pairs = zip(defined.get(node.arguments["cteId"], ()), node.output, strict=False)
            open_ones |= {a.id for inner, a in pairs if inner.id in open_ones}
        made = {one.id for one in _named(node) if _is_session(one)}
        grouped = {one.id for one in node.all("groupingExpressions") if one.is_attribute}
        for expression in node.expressions:
            handed_on = node.kind == "Project" and expression.bare.is_attribute
            if not handed_on and set(expression.references) & open_ones - grouped and not _is_of_spark(node):
                raise _refused()
            if handed_on and expression.bare.id in open_ones:
                made.add(expression.id)
        open_ones = (open_ones | made) - grouped
    if any(attribute.id in open_ones for attribute in plan.output):
        raise _refused()


def _named(node: Node) -> Iterator[Node]:
    """The records of two parts that a selection computes."""
    listed = node.all("projectList") if node.kind == "Project" else ()
    return (one for one in listed if one.kind == "Alias" and one.bare.kind == "CreateNamedStruct")


def _is_session(named: Node) -> bool:
    return bool(named.jvm.metadata().contains(MARK))


def _is_of_spark(node: Node) -> bool:
    """Whether it is the filter that Spark puts over the windows that it makes: those of a length above zero."""
    return node.kind == "Filter" and any(map(_is_session, _named(node.children[0])))


def _refused() -> Untraceable:
    return Untraceable(
        "the start or the end of a session_window for single rows, which are in no session yet",
        "group by the whole: GROUP BY bidder, session_window(at, '10 seconds'), and select session_window.start",
    )
