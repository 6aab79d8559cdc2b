"""How far in time a view over partitions looks, by its plan: functions over time have marked where they begin and end.

A column that such a function adds and drops at once says it: of each of its inputs what the rows' time is, and of its
result how far it looks. Nothing else brings rows together but a window by ranges of time. Where the plan has any other
operator of several rows, the view is computed by whole partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from projections.declaring.timing.nearness import Nearness
from projections.planning.plans import SAME_ROWS, Node, operators, role

if TYPE_CHECKING:
    from projections.declaring.views import View

MARK: Final = "factfold_near"  # the name of the column that says it
TIME, BOUNDS, WAYS, MICROS, CHAINED = "time", "bounds", "ways", "micros", "chained"
BEFORE, AFTER = "before", "after"

_ROW_BY_ROW: Final = (*SAME_ROWS, "Filter", "Generate")
_KINDS: Final = ("timestamp", "long")
_TIMES: Final = ("UnixMicros", "MicrosToTimestamp")  # other forms of one time
_INDIRECT: Final = 4  # a function over the result of another may go by the time of either of its sides
_Columns = dict[int, tuple[str, str]]  # attribute → table and column


class _Whole(Exception):
    """An operator of which nothing shows how far it looks."""


def nearness(view: View, plan: Node) -> Nearness | None:
    """How far a changed row reaches; None where that may be its whole partition."""
    if not view.by or any(True for node in operators(plan) for _ in node.subqueries):
        return None
    tracing = _Tracing(view)
    try:
        tracing.columns(plan)
    except _Whole:
        return None
    return tracing.found()


class _Tracing:
    def __init__(self, view: View) -> None:
        self._view = view
        self._times: dict[str, str] = {}
        self._functions: list[dict[str, Any]] = []
        self._windows = 0
        self._bounds: str | None = None

    def found(self) -> Nearness | None:
        """What the marks say together, if there is a time of each table."""
        kinds = {self._view.table(name).columns[column].kind for name, column in self._times.items()}
        if self._times.keys() != self._view.tables.keys() or len(kinds) != 1 or not kinds <= {*_KINDS}:
            return None
        first, *others = self._functions or [{}]
        if not others and not self._windows:
            ways = first.get(WAYS, ())
            looks = first.get(MICROS, 0), CHAINED in first, self._bounds
            return Nearness(self._times, *looks, before=BEFORE in ways, after=AFTER in ways)
        if any(CHAINED in one or BOUNDS in one for one in (first, *others)):
            return None
        micros = sum(one[MICROS] for one in self._functions) * (_INDIRECT if others else 1)
        return Nearness(self._times, micros + self._windows)

    def columns(self, node: Node) -> _Columns:
        """The attributes of an operator's rows that are columns of tables, times in any form."""
        if not node.children:
            return self._of_table(node)
        if (mark := _marked(node)) is not None:
            return self._of_function(node, mark)
        below = self.columns(node.children[0]) if len(node.children) == 1 else {}
        match node.kind:
            case "Project":
                found = {one.id: _origin(one.bare, below) for one in node.all("projectList")}
                return {id: origin for id, origin in found.items() if origin is not None}
            case "Window":
                self._windows += max(self._of_window(named.bare, below) for named in node.all("windowExpressions"))
                return below
            case kind if kind in _ROW_BY_ROW:
                return below
        raise _Whole

    def _of_table(self, node: Node) -> _Columns:
        name = role(node)
        if name is None or node.kind != "LogicalRDD":
            raise _Whole
        return {a.id: (name, a.name) for a in node.output}

    def _of_function(self, node: Node, mark: dict[str, Any]) -> _Columns:
        found: _Columns = {}
        for place, said in _inputs(node.children[0]):
            found |= (below := self.columns(place.children[0]))
            time = next(a.id for a in place.output if a.name == said[TIME])
            self._note(below.get(time))
            if BOUNDS in mark and said[BOUNDS]:
                self._bounds = self._bounding(place, below[time][0], mark[BOUNDS])
        self._functions.append(mark)
        return found

    def _bounding(self, place: Node, name: str, on: Sequence[str]) -> str:
        """The table all of whose rows bound how far a row reaches."""
        left_out = any(node.kind in ("Filter", "Generate") for node in operators(place.children[0]))
        if left_out or self._view.table(name).condition is not None or {*on} != {*self._view.by}:
            raise _Whole
        return name

    def _note(self, origin: tuple[str, str] | None) -> None:
        if origin is None or self._times.setdefault(*origin) != origin[1]:
            raise _Whole

    def _of_window(self, window: Node, below: _Columns) -> int:
        """How long a window by a range of times is; of rows of a table, as a function's may have no time at all."""
        spec = window.one("windowSpec")
        orders, frame = spec.all("orderSpec"), spec.one("frameSpecification")
        if self._functions or len(orders) != 1 or "lower" not in frame.arguments:
            raise _Whole
        if not str(frame.arguments["frameType"]["object"]).endswith("RangeFrame$"):
            raise _Whole
        self._note(_origin(orders[0].one("child"), below))
        return max(_end(frame.one("upper")), 0) - min(_end(frame.one("lower")), 0)


def _marked(node: Node) -> dict[str, Any] | None:
    """What a mark in an operator says; None without one."""
    named = node.all("projectList") if node.kind == "Project" else ()
    said = [one.bare for one in named if one.kind == "Alias" and one.name == MARK]
    return json.loads(said[0].arguments["value"]) if said else None


def _inputs(node: Node) -> Iterator[tuple[Node, dict[str, Any]]]:
    """Where a function's inputs come in, which its mark is above."""
    if (mark := _marked(node)) is not None and TIME in mark:
        yield node, mark
        return
    if not node.children:
        raise _Whole
    for child in node.children:
        yield from _inputs(child)


def _origin(expression: Node, columns: _Columns) -> tuple[str, str] | None:
    while expression.kind in _TIMES:
        expression = expression.children[0]
    return columns.get(expression.id) if expression.is_attribute else None


def _end(bound: Node) -> int:
    """Where a range ends, in microseconds."""
    while bound.kind == "Cast":
        bound = bound.children[0]
    if bound.kind.startswith("CurrentRow"):
        return 0
    if bound.kind != "Literal" or bound.type != "bigint":
        raise _Whole
    return int(bound.arguments["value"])
