"""Whether the plan of a view over partitions looks at rows of one partition at a time, in an order that is certain.

A batch gives the function all rows of the partitions that it changes, or those near in time (`nearness`). An operator
that combines rows, a join, a group, a window, a subquery, must combine them by the columns of ``by``. A plan that does
not show this is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from projections.declaring.tables import FROM
from projections.declaring.timing.promises import Length, Reach
from projections.planning.aggregates import TellApart, require_right
from projections.planning.expressions import (
    MEETING,
    Subquery,
    conditions,
    false_for_null,
    require_no_equal_ones,
    subqueries,
)
from projections.planning.partition_rows import EQUAL, Ids, LocalRows, Side, attributes, equates, joined
from projections.planning.plans import (
    ANY_TIME,
    CONSTANT,
    LOOKS,
    NUMBERED,
    ONE_ROW,
    PARTITION,
    ROW_KEY,
    SAME_ROWS,
    Node,
    role,
)
from projections.planning.refusals import Untraceable

if TYPE_CHECKING:
    from projections.declaring.views import View

BY_VALUE: Final = ("Rank", "DenseRank", "PercentRank", "CumeDist")  # equal rows have one value

_DISTINCT_ITEMS: Final = ("Sequence", "ArrayDistinct", "MapKeys")
_LIMITED: Final = {"GlobalLimit": "a limit", "LocalLimit": "a limit", "Tail": "a limit", "Offset": "an offset",
                   "Sample": "a sample"}  # fmt: skip
_REPEATED: Final = "Expand"
_METHODS: Final = {
    "Project": "project", "Filter": "filter", "Generate": "generate", "Window": "window", "Aggregate": "aggregate",
    "Distinct": "distinct", "Deduplicate": "distinct", "Join": "join", "LateralJoin": "lateral", "Union": "united",
    "Except": "set_operation", "Intersect": "set_operation", "MapInArrow": "in_order",
}  # fmt: skip
_WITH_ABOVE: Final = ("Project", "Filter", "Join")  # their methods get the conditions above them


def require_partitioned(view: View, plan: Node) -> bool:
    """Raise Untraceable where a plan looks outside a partition, or may have two rows of one key.

    Returns whether the plan proves that it has no two rows of one key. Otherwise only a run shows it.
    """
    rows = _Tracing(view).rows(plan)
    output = {a.name: a for a in plan.output}
    for place, column in enumerate(() if view.within == "all" else view.by):
        if column not in output or not rows.holds(place, output[column]):
            raise Untraceable(
                f"another value for {column!r} than its tables have",
                f"return {column} as they have it, after a full join coalesce(a.{column}, b.{column}). A column of"
                " another name may hold what is computed from it",
            )
    key = [output[column] for column in view.key]
    if not (rows.distinguish(key) if view.grouped else rows.may_be_apart(key)):
        raise _repeated(view, rows)
    return rows.distinguish(key)


def _repeated(view: View, rows: LocalRows) -> Untraceable:
    by = ", ".join(view.by)
    of_what = f": {rows.exploded}" if rows.exploded else ": a union" if rows.united else ""
    if view.grouped:
        return Untraceable(
            f"several rows of one group{of_what}",
            f"return one row a group, groupBy({by}).agg(…), or name what distinguishes its rows: key='…' with by='…'",
        )
    return Untraceable(
        f"rows that its key, {', '.join(view.key)}, may not tell apart{of_what}",
        f"name in key the columns that do, in addition to {by}: the keys of joined tables, what is grouped by, or a"
        " row_number()",
    )


class _Tracing:
    def __init__(self, view: View) -> None:
        self._view = view
        self._definitions: dict[int, Node] = {}
        self._outer: list[LocalRows] = []

    def rows(self, node: Node, above: Sequence[Node] = ()) -> LocalRows:
        """What is known of the rows of an operator; the conditions in ``above`` hold for the operators over it."""
        name, children = node.kind, node.children
        if self._view.reach is not None:
            self._require_reach(node, self._view.reach)
        if name == "CTERelationRef":
            return self._reference(node)
        if name == "WithCTE":
            self._definitions |= node.definitions
            return self.rows(node.one("plan"))
        if not children:
            return self._leaf(node)
        if name in SAME_ROWS:
            return self.rows(children[0], above)
        if name in _LIMITED and self._view.within == "all":
            return self.rows(children[0])  # a stage of all rows orders them by their key, too
        if name in _LIMITED:
            raise Untraceable(
                f"{_LIMITED[name]}, which looks at all partitions",
                "number the rows of each: row_number() OVER (PARTITION BY … ORDER BY …) <= 3",
            )
        if name == _REPEATED:
            raise Untraceable(
                "rows repeated for each of several groupings, as by ROLLUP, UNPIVOT or windows that overlap",
                "write a view for each grouping. For windows that overlap, windowed(…, hopping(…))",
            )
        method = getattr(self, f"_{_METHODS[name]}", None) if name in _METHODS else None
        if method is None:
            raise Untraceable(
                f"{name}, of which nothing shows which rows it looks at",
                "select, filter, join, group, or number rows within the columns of by. Write Python code as a function"
                " of columns (udf)",
            )
        known: LocalRows = method(node, children, above) if name in _WITH_ABOVE else method(node, children)
        return known

    def _reference(self, node: Node) -> LocalRows:
        definition = self._definitions[node.arguments["cteId"]]
        below = self.rows(definition)
        inner, outer = definition.output, node.output
        names = {a.id: {b.id} for a, b in zip(inner, outer, strict=True)}
        return _renamed(below, names)

    def _leaf(self, node: Node) -> LocalRows:
        output = node.output
        name = role(node)
        if name is None:
            if node.kind in CONSTANT:
                one_row = (frozenset[int](),) if node.kind == "OneRowRelation" else ()
                return LocalRows(by=((),) * len(self._view.by), unique=one_row, constant=True)
            raise Untraceable(
                f"{node.kind}, rows that no parameter of it has",
                "declare them as a table and take it as a parameter",
            )
        table = self._view.table(name)
        ids = {a.name: a.id for a in output}
        held = self._view.root_key_in(name)
        by = tuple((frozenset({ids[column]}),) for column in held)
        of_row = (FROM,) if FROM in ids else table.key
        own = frozenset(ids[column] for column in of_row if column not in held)
        present = () if table.key_may_be_null else tuple(frozenset({ids[column]}) for column in table.key)
        linked = frozenset({0}) if self._view.within == "all" else frozenset[int]()
        unique = (frozenset[int](),) if self._view.within == "row" else (own,)
        return LocalRows(by, unique, linked, present)

    # ---- rows one by one

    def _project(self, node: Node, children: Sequence[Node], above: Sequence[Node]) -> LocalRows:
        below, expressions = self.rows(children[0], above), node.all("projectList")
        self._look_into(expressions, below)
        return below.selected(expressions)

    def _filter(self, node: Node, children: Sequence[Node], above: Sequence[Node]) -> LocalRows:
        parts = conditions(node)
        below = self._linked(self.rows(children[0], (*parts, *above)), parts)
        for part in parts:
            self._look_into([part], below, truth=True)
        return below.narrowed(parts)

    def _generate(self, node: Node, children: Sequence[Node]) -> LocalRows:
        below, generator = self.rows(children[0]), node.one("generator")
        self._look_into([generator], below)
        if generator.kind in ONE_ROW:
            return below
        made = [a.id for a in node.all("generatorOutput")]
        apart = _tells_apart(generator, made)
        unique = () if apart is None else tuple(some | {apart} for some in below.unique)
        return replace(below, unique=unique, exploded=generator.sql, parts=())

    def _window(self, node: Node, children: Sequence[Node]) -> LocalRows:
        below = self.rows(children[0])
        if not below.hold_all(node.all("partitionSpec")) and not below.is_of_one_partition:
            raise Untraceable(
                "a window over rows of several partitions",
                f"partition it by the columns of by: PARTITION BY {', '.join(self._view.by)}",
            )
        numbered = [require_certain(named, below) for named in node.all("windowExpressions")]
        return below.with_unique([*below.unique, *(ids for ids in numbered if ids is not None)])

    # ---- rows brought together

    def _aggregate(self, node: Node, children: Sequence[Node]) -> LocalRows:
        below, by = self.rows(children[0]), node.all("groupingExpressions")
        self._require_within(below, by, "an aggregate")
        expressions = node.all("aggregateExpressions")
        for expression in expressions:
            require_right(expression, below.within(by))
        self._look_into(expressions, below)
        grouped = frozenset(a.id for a in by if a.is_attribute and not self._is_by(below, a))
        whole = all(a.is_attribute or self._is_by(below, a) for a in by)
        rows = replace(below, unique=(grouped,) if whole else (), exploded=None, united=False, parts=())
        return rows.selected(expressions)

    def _distinct(self, node: Node, children: Sequence[Node]) -> LocalRows:
        below, output = self.rows(children[0]), node.output
        self._require_within(below, output, "rows without duplicates")
        keys = node.all("keys") if node.kind == "Deduplicate" else output
        if len(keys) < len(output):
            raise Untraceable(
                "dropDuplicates by some of the columns, which depends on the order its rows come in",
                "say which row stays: groupBy(…).agg(max_by(struct(…), struct(at, id))), or row_number() = 1",
            )
        return replace(below, unique=(*below.unique, attributes(output)), exploded=None, united=False, parts=())

    def _join(self, node: Node, children: Sequence[Node], above: Sequence[Node]) -> LocalRows:
        how = node.how
        parts = conditions(node)
        parts += above if how in ("INNER", "CROSS") else ()
        left, right = (self.rows(child, parts if how in ("INNER", "CROSS") else ()) for child in children)
        both = replace(left, by=tuple(one or other for one, other in zip(left.by, right.by, strict=True)))
        for part in parts:
            self._look_into([part], both, truth=True)
        linking = parts if how in MEETING else []
        one = Side.of(self._linked(left, linking), children[0])
        other = Side.of(self._linked(right, linking), children[1])
        return self._met(how, one, other, parts)

    def _lateral(self, node: Node, children: Sequence[Node]) -> LocalRows:
        left = self.rows(children[0])
        right = self._inside(node.one("right").one("plan"), left)
        parts = conditions(node)
        if not (right.constant or right.is_of_one_partition or self._within(left, right, parts)):
            raise self._outside("LATERAL")
        sides = Side.of(left, children[0]), Side.of(right, node.one("right").one("plan"))
        return joined(node.how, *sides, parts)

    def _met(self, how: str, one: Side, other: Side, parts: Sequence[Node]) -> LocalRows:
        left, right = one.rows, other.rows
        preserved = {"LEFT OUTER": (left,), "LEFT SEMI": (left,), "LEFT ANTI": (left,), "RIGHT OUTER": (right,),
                     "FULL OUTER": (left, right)}.get(how, ())  # fmt: skip
        if left.constant or right.constant:
            if any(rows.constant for rows in preserved) and not (left.constant and right.constant):
                raise Untraceable(
                    f"a {how} JOIN that keeps rows of no partition", "keep the rows of the tables, and join the others"
                )
            return joined(how, one, other, parts)
        if not (left.is_of_one_partition and right.is_of_one_partition) and not self._within(left, right, parts):
            shown = " AND ".join(part.sql for part in parts) or "no condition"
            raise Untraceable(
                f"a join of rows of several partitions: {shown}",
                f"join them by the columns of by, {' AND '.join(f'a.{c} = b.{c}' for c in self._view.by)}",
            )
        return joined(how, one, other, parts)

    def _united(self, node: Node, children: Sequence[Node]) -> LocalRows:
        parts = [self.rows(child) for child in children]
        if any(part.constant for part in parts):
            raise Untraceable("a union with rows of no table", "write them into a table, with its partition's columns")
        outputs = [[a.id for a in child.output] for child in children]
        made = [a.id for a in node.output]
        by = tuple(_united_by(place, parts, outputs, made) for place in range(len(self._view.by)))
        linked = frozenset.intersection(*(part.linked for part in parts))
        united = tuple(part.placed(output, made) for part, output in zip(parts, outputs, strict=True))
        return LocalRows(by, linked=linked, united=True, parts=united)

    def _set_operation(self, node: Node, children: Sequence[Node]) -> LocalRows:
        united = self._united(node, children)
        self._require_within(united, node.output, node.kind.upper())
        return replace(united, unique=(attributes(node.output),), united=False, parts=())

    def _in_order(self, node: Node, children: Sequence[Node]) -> LocalRows:
        """Rows that match_pattern makes of those of a partition, which follow each other; marked in the same way.

        They come from a window by these columns, and only operators on single rows follow it.
        """
        below, output = self.rows(children[0]), node.output
        own = {a.name: a for a in children[0].output}
        marked = {marks[PARTITION]: a for a, marks in zip(output, node.marks, strict=True) if PARTITION in marks}
        # What is numbered is matched next: no result of ours has such a column.
        numbered = any(NUMBERED in marks for marks in children[0].marks)
        if not (numbered and set(self._view.by) <= marked.keys()):
            raise Untraceable(
                "a Python function of batches, of which nothing shows which rows it brings together",
                "use match_pattern(…) by the columns of by, or a function of columns (udf)",
            )
        self._require_within(below, [own[column] for column in marked], "match_pattern")
        by = tuple((frozenset({marked[column].id}),) for column in self._view.by)
        key = [a for a, marks in zip(output, node.marks, strict=True) if ROW_KEY in marks]
        further = [column for column in marked if column not in self._view.by]
        of_row = [*(own[a.name] for a in key if a.name in own), *(own[column] for column in further)]
        unique = (attributes([*key, *(marked[column] for column in further)]),) if below.distinguish(of_row) else ()
        return LocalRows(by, unique, united=not unique, exploded="match_pattern" if unique else None)

    def _require_reach(self, node: Node, reach: Reach) -> None:
        """Refuse a join or a pattern that looks further than its view says, at rows that may be forgotten."""
        for span in (marks[LOOKS] for marks in node.marks if LOOKS in marks):
            if span == ANY_TIME:
                raise Untraceable(
                    "a join or a pattern that looks at rows of any time, and a reach",
                    "bound what it looks at: tolerance=… in join_as_of. Within and skip_to_next_row() in a pattern, and"
                    " no previous(…), or leave reach out",
                )
            if span > reach.micros:
                raise Untraceable(
                    f"a join or a pattern that looks {Length(span)} away, and a reach of {Length(reach.micros)}",
                    f"let it reach as far: reach=Reach('{Length(span)}', on={reach.on!r})",
                )

    # ---- partitions

    def _is_by(self, rows: LocalRows, expression: Node) -> bool:
        return any(rows.holds(place, expression) for place in range(len(self._view.by)))

    def _require_within(self, rows: LocalRows, by: Sequence[Node], what: str) -> None:
        require_no_equal_ones([one for one in by if not self._is_by(rows, one)], what)
        if rows.constant or rows.is_of_one_partition or rows.hold_all(by):
            return
        shown = ", ".join(one.sql for one in by) or "nothing"
        raise Untraceable(
            f"{what} by {shown}",
            f"group by {', '.join(self._view.by)} too, as the tables have it, after a full join by coalesce of both. In"
            " a subquery, compare it with that of the row around it",
        )

    def _within(self, left: LocalRows, right: LocalRows, parts: Sequence[Node]) -> bool:
        return all(any(equates(part, left, right, place) for part in parts) for place in range(len(self._view.by)))

    def _linked(self, rows: LocalRows, parts: Sequence[Node]) -> LocalRows:
        """The rows with what links them to the row around a subquery."""
        if not self._outer:
            return rows
        outer = self._outer[-1]
        linked = {n for n in range(len(self._view.by)) if any(_links(part, rows, outer, n) for part in parts)}
        return replace(rows, linked=rows.linked | linked)

    # ---- subqueries

    def _look_into(self, expressions: Sequence[Node], rows: LocalRows, *, truth: bool = False) -> None:
        for expression in expressions:
            for subquery in subqueries(expression, truth=truth):
                inner = self._inside(subquery.plan, rows)
                if not (inner.constant or inner.is_of_one_partition or self._is_looked_up(subquery, inner, rows)):
                    raise self._outside(subquery.name)
                if not subquery.asked and (nullable := next(_nullable(subquery, rows, inner), None)):
                    raise false_for_null(subquery, nullable)

    def _is_looked_up(self, subquery: Subquery, inner: LocalRows, rows: LocalRows) -> bool:
        """Whether IN compares the columns of ``by``, and only whether it is true counts."""
        listed = subquery.plan.output[: len(subquery.values)]
        pairs = list(zip(subquery.values, listed, strict=True))
        places = range(len(self._view.by))
        compared = all(any(rows.holds(p, a) and inner.holds(p, b) for a, b in pairs) for p in places)
        return bool(pairs) and compared and subquery.truth and not subquery.negated

    def _inside(self, plan: Node, rows: LocalRows) -> LocalRows:
        self._outer.append(rows)
        inner = self.rows(plan)
        self._outer.pop()
        return inner

    def _outside(self, name: str) -> Untraceable:
        return Untraceable(
            f"{name} over rows of several partitions",
            f"compare the columns of by in it: WHERE {' AND '.join(f't.{c} = outer.{c}' for c in self._view.by)}",
        )


def _nullable(subquery: Subquery, rows: LocalRows, inner: LocalRows) -> Iterator[Node]:
    """The values that IN compares, and that may be null."""
    listed = subquery.plan.output[: len(subquery.values)]
    compared = [*((v, rows) for v in subquery.values), *((a, inner) for a in listed)]
    return (one for one, known in compared if not (one.is_attribute and known.is_present(attributes([one]))))


def _renamed(rows: LocalRows, names: dict[int, set[int]]) -> LocalRows:
    def new_ids(ids: Ids) -> Ids:
        return frozenset().union(*(names[i] for i in ids if i in names))

    by = tuple(tuple(new_ids(ids) for ids in sets) for sets in rows.by)
    return replace(
        rows, by=by, unique=tuple(map(new_ids, rows.unique)), present=tuple(map(new_ids, rows.present)), parts=()
    )


def _tells_apart(generator: Node, made: Sequence[int]) -> int | None:
    """The attribute that is another one in each row that a generator makes of one."""
    if generator.kind == "PosExplode":
        return made[0]
    child = generator.children[0]
    is_map = child.type.startswith("map<")
    if generator.kind == "Explode" and (is_map or child.kind in _DISTINCT_ITEMS):
        return made[0]
    return None


def _united_by(
    place: int, parts: Sequence[LocalRows], outputs: Sequence[Sequence[int]], made: Sequence[int]
) -> tuple[Ids, ...]:
    if any(len(part.by[place]) != 1 for part in parts):
        return ()
    held = [all(o[n] in p.by[place][0] for p, o in zip(parts, outputs, strict=True)) for n in range(len(made))]
    ids = frozenset(id for n, id in enumerate(made) if held[n])
    return (ids,) if ids else ()


def _links(part: Node, rows: LocalRows, outer: LocalRows, place: int) -> bool:
    if part.kind not in EQUAL:
        return False
    sides = ((part.one("left"), part.one("right")), (part.one("right"), part.one("left")))
    return any(
        theirs.kind == "OuterReference" and rows.holds(place, ours) and outer.holds(place, theirs.one("e"))
        for ours, theirs in sides
    )


def require_certain(named: Node, below: LocalRows) -> Ids | None:
    """Refuse a window function whose value depends on the order of equal rows; Untraceable.

    Returns the attributes that distinguish rows if it numbers them.
    """
    window = named.bare
    function, spec = window.one("windowFunction"), window.one("windowSpec")
    orders = [order.one("child") for order in spec.all("orderSpec")]
    by = spec.all("partitionSpec")
    if not below.distinguish([*by, *orders]):
        _require_order_free(function, spec, below.within(by))
    if function.kind == "RowNumber" and all(one.is_attribute for one in by):
        return _not_by(below, by) | {named.id}
    return None


def _require_order_free(function: Node, spec: Node, distinguish: TellApart) -> None:
    if function.kind in BY_VALUE:
        return
    if function.kind == "AggregateExpression" and _looks_by_value(spec.one("frameSpecification")):
        require_right(function, distinguish)
        return
    named = function.one("aggregateFunction") if function.kind == "AggregateExpression" else function
    raise Untraceable(
        f"{named.jvm.prettyName()} over rows of which two may be equal in the order of its window",
        "order by what is equal, and then by the key of the table: ORDER BY at, id",
    )


def _looks_by_value(frame: Node) -> bool:
    """Whether a frame has all rows that are equal in its order, or none of them."""
    if frame.kind.startswith("UnspecifiedFrame"):
        return True
    by_range = str(frame.arguments["frameType"]["object"]).endswith("RangeFrame$")
    whole = [frame.one("lower").kind, frame.one("upper").kind]
    return by_range or whole == ["UnboundedPreceding$", "UnboundedFollowing$"]


def _not_by(below: LocalRows, by: Sequence[Node]) -> Ids:
    places = range(len(below.by))
    return attributes(one for one in by if not any(below.holds(place, one) for place in places))
