"""Whether a live batch answers as a rebuild does: a view's analysed plan, followed from its tables to its rows.

A batch's slices hold the affected root rows and what these point to (`rows`). Each row of the plan is traced to the
rows it is made of. Wherever two rows meet, the slices must hold the second if they hold the first. What cannot be
traced is refused.

The references that a view leaves to its plan are proposed here too: the equalities under which rows of its tables meet.
The same tracing decides by inferred references as by declared ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import islice, product
from typing import Final

from projections.declaring.views import Reference, View
from projections.planning.aggregates import require_right
from projections.planning.expressions import MEETING, Subquery, Values, conditions, subqueries
from projections.planning.plans import CONSTANT, ONE_ROW, SAME_ROWS, Node, role
from projections.planning.rows import (
    Condition,
    Origin,
    Origins,
    Pair,
    Paths,
    Rows,
    Same,
    Untraceable,
    any_of,
    distinguish,
    equated,
    named_tables,
    renamed,
)

ROOT: Final = "root"  # the row of the view's key
_MOST_COMBINED: Final = 64  # columns from which one meeting may take a key

Link = tuple[str, tuple[str, ...]]
"""A table, and the columns of it that hold the key of another one."""


def require_traced(view: View, plan: Node) -> Rows:
    """Return where the rows of a view's plan come from; Untraceable where a batch may answer otherwise than a rebuild.

    There is one row a key.
    """
    rows = Tracing(view).rows(plan, ())
    _require_one_row_a_key(view, rows)
    return rows


def _require_one_row_a_key(view: View, rows: Rows) -> None:
    if rows.keys != {ROOT}:
        raise Untraceable(
            f"one row a row of {', '.join(sorted(rows.tables[row] for row in rows.keys)) or 'no table'}",
            f"return one row for each of {view.root}, the first parameter, or make another table the first",
        )
    if rows.repeated:
        raise Untraceable(
            f"several rows of one key: {rows.repeated}",
            f"for a row an item, name by={_shown(view.root_key)} instead of key=, and the number of the item in key:"
            f" posexplode, key=({', '.join(map(repr, view.root_key))}, 'pos')",
        )


def _shown(columns: Sequence[str]) -> str:
    return repr(columns[0] if len(columns) == 1 else tuple(columns))


def require_own_key(view: View, plan: Node, rows: Rows) -> None:
    """Require that a view's key is that of its tables; Untraceable."""
    ids = {a.name: a.id for a in plan.output}
    for column, key in zip(view.root_key, view.table(view.root).key, strict=True):
        origins = rows.columns.get(ids[column])
        alike = [{origin, *rows.same.get(origin, ())} for origin in origins or ()]
        if not alike or not all(any((o.table, o.column) == (view.root, key) for o in some) for some in alike):
            raise Untraceable(
                f"another value for its key {column!r} than its table has",
                "select the key as it is there. A column of another name may hold what is computed from it",
            )


class Tracing:
    """Follows a view's plan from its leaves to its rows."""

    def __init__(self, view: View) -> None:
        self._view, self._paths = view, Paths(view)
        self._values = Values()
        self._definitions: dict[int, Node] = {}
        self._places = 0
        self._outer: list[tuple[Rows, list[Condition]]] = []

    def rows(self, node: Node, above: Sequence[Node]) -> Rows:
        """The rows of an operator; the conditions in ``above`` hold for the operators over it."""
        name = node.kind
        children = node.children
        if not children and name != "CTERelationRef":
            return self._leaf(node)
        match name:
            case "WithCTE":
                self._definitions |= node.definitions
                return self.rows(node.one("plan"), above)
            case "CTERelationRef":
                below = self.rows(self._definitions[node.arguments["cteId"]], ())
                inner = self._definitions[node.arguments["cteId"]].output
                return renamed(below, zip(inner, node.output, strict=True))
            case "Project":
                return self._project(node, self.rows(children[0], above))
            case "Filter":
                return self._filter(node, self.rows(children[0], (*conditions(node), *above)))
            case "Join":
                return self._join(node, above)
            case "LateralJoin":
                return self._lateral(node, children[0])
            case "Generate":
                return self._generate(node, self.rows(children[0], ()))
            case "Union":
                return self._union(node, children)
            case "Aggregate" | "Deduplicate" | "Distinct":
                return self._aggregate(node, self.rows(children[0], ()))
            case _ if name in SAME_ROWS:
                return self.rows(children[0], above)
        raise Untraceable(
            f"{name}, of which nothing shows which rows it looks at",
            "select, filter, join along references, or explode. Write Python code as a function of columns (udf)",
        )

    # ---- operators

    def _leaf(self, node: Node) -> Rows:
        output = node.output
        table = role(node)
        if table is None:
            if node.kind in CONSTANT:
                return Rows({a.id: None for a in output})
            raise Untraceable(
                f"{node.kind}, rows that no parameter of it has",
                "declare them as a table and take it as a parameter",
            )
        self._places += 1
        inside = "".join(f"{len(self._outer)}>" for _ in self._outer)
        row = f"{inside}{ROOT}" if table == self._view.root else f"{table}#{self._places}"
        columns: dict[int, Origins] = {a.id: frozenset({Origin(row, table, a.name)}) for a in output}
        key = () if self._paths.nullable else self._paths.keys[table]
        present = frozenset(a.id for a in output if a.name in key)
        return Rows(columns, frozenset({row}), {row: table}, present=present)

    def _project(self, node: Node, below: Rows) -> Rows:
        for expression in node.all("projectList"):
            self._look_into(expression, below, truth=False)
        columns, present = dict[int, Origins](), set(below.present)
        for named in node.all("projectList"):
            inner = named.bare
            columns[named.id] = self._values.origins(inner, below)
            if self._values.is_present(inner, below):
                present.add(named.id)
        generated = (
            below.generated | {n.id for n in node.all("projectList") if _uses(n, below.generated)}
            if below.generated
            else below.generated
        )
        return replace(below, columns=columns, present=frozenset(present), generated=generated)

    def _filter(self, node: Node, below: Rows) -> Rows:
        parts = conditions(node)
        rows = self._values.narrowed(below, parts)
        for part in parts:
            self._look_into(part, rows, truth=True)
        if self._outer:
            self._outer[-1][1].append(self._values.condition(parts, self._outer[-1][0], rows, outer=True))
        chosen = any(_uses(part, rows.generated) for part in parts)
        repeated = None if chosen else rows.repeated
        return replace(rows, repeated=repeated, filtered=True)

    def _join(self, node: Node, above: Sequence[Node]) -> Rows:
        how = node.how
        own = conditions(node)
        inner = how in ("INNER", "CROSS")
        first = self.rows(node.one("left"), (*own, *above) if inner else above if how.startswith("LEFT") else ())
        second = self.rows(node.one("right"), (*own, *above) if inner else ())
        both = first.and_of(second)
        for part in own:
            self._look_into(part, both, truth=True)
        if self._outer and how in MEETING:
            self._outer[-1][1].append(self._values.condition(own, self._outer[-1][0], both, outer=True))
        condition = self._values.condition((*own, *above) if inner else own, first, second)
        joined = self._meet(how, first, second, condition, own)
        return self._values.narrowed(joined, own) if inner else joined

    def _lateral(self, node: Node, left: Node) -> Rows:
        first = self.rows(left, ())
        second, condition = self._inside(node.one("right").one("plan"), first)
        own = conditions(node)
        condition += self._values.condition(own, first, second)
        return self._meet(node.how, first, second, condition, own)

    def _generate(self, node: Node, below: Rows) -> Rows:
        self._look_into(node.one("generator"), below, truth=False)
        made = [a.id for a in node.all("generatorOutput")]
        columns = {**below.columns, **dict.fromkeys(made)}
        if node.one("generator").kind in ONE_ROW:
            return replace(below, columns=columns)
        shown = node.one("generator").sql
        return replace(below, columns=columns, repeated=shown, generated=below.generated | set(made))

    def _union(self, node: Node, children: Sequence[Node]) -> Rows:
        linked = self._outer[-1][1] if self._outer else []
        before = len(linked)
        parts = [self.rows(child, ()) for child in children]
        del linked[before:]  # what links the rows of one part to that around a subquery, links those of no other
        alike = {part.keys for part in parts}
        if frozenset() in alike or len(alike) > 1:
            raise Untraceable(
                f"a union of rows of {', '.join(map(named_tables, parts))}",
                "join them along references",
            )
        united = reduce(Rows.and_of, parts)
        if sum(not part.filtered for part in parts) > 1:
            united = replace(united, repeated=f"a union of {' and '.join(map(named_tables, parts))}")
        outputs = [[a.id for a in child.output] for child in node.children]
        columns: dict[int, Origins] = {}
        for place, attribute in enumerate(node.output):
            ours = [part.columns.get(output[place]) for part, output in zip(parts, outputs, strict=True)]
            columns[attribute.id] = any_of(ours)
        return replace(united, columns=columns, same={}, present=frozenset())

    def _aggregate(self, node: Node, below: Rows) -> Rows:
        """Only rows as they are, each once; in a subquery, whatever it makes of the rows that it looks at."""
        name = node.kind
        columns = {a.id: below.columns.get(a.id) for a in node.output}
        if name == "Deduplicate" and len(node.all("keys")) < len(columns):
            raise Untraceable(
                "dropDuplicates by some of the columns, which depends on the order its rows come in",
                "say which row stays: groupBy(…).agg(max_by(struct(…), struct(at, id)))",
            )
        for expression in node.all("aggregateExpressions") if name == "Aggregate" else ():
            require_right(expression, partial(distinguish, below, self._paths.keys))
            self._look_into(expression, below, truth=False)
            inner = expression.bare
            columns[expression.id] = self._values.origins(inner, below)
        if self._outer or self._keeps_keys(below, columns):
            return replace(below, columns=columns)
        raise Untraceable(
            "rows without duplicates, and without their key", "select the key of each table too, or leave DISTINCT out"
        )

    def _keeps_keys(self, below: Rows, columns: dict[int, Origins]) -> bool:
        unchanged = {o for origins in columns.values() if origins and len(origins) == 1 for o in origins}
        return all(
            Origin(r, below.tables[r], c) in unchanged for r in below.keys for c in self._paths.keys[below.tables[r]]
        )

    # ---- rows that meet

    def _meet(self, how: str, left: Rows, right: Rows, condition: Condition, own: Sequence[Node]) -> Rows:
        if how == "RIGHT OUTER":
            return self._meet("LEFT OUTER", right, left, condition.turned(), own)
        onward = self._leads(left, right, condition)
        back = self._leads(right, left, condition.turned())
        if how in ("LEFT SEMI", "LEFT ANTI") and onward:
            return replace(left, filtered=True)
        keys = self._keys(how, left, right, onward=onward, back=back)
        if keys is None:
            raise self._no_path(left, right, own)
        both = left.and_of(right)
        pairs = condition.pairs if how in ("INNER", "CROSS", "LEFT OUTER") else ()
        same = equated(both.same, pairs, only_right=how == "LEFT OUTER")
        present = {"LEFT OUTER": left.present, "FULL OUTER": frozenset[int]()}.get(how, both.present)
        return replace(both, keys=keys, same=same, present=present)

    def _keys(self, how: str, left: Rows, right: Rows, *, onward: bool, back: bool) -> frozenset[str] | None:
        """What distinguishes the joined rows; None where the slices may not hold all of them."""
        match how:
            case "INNER" | "CROSS" if onward or back:
                return left.keys if onward and left.tables else right.keys
            case "LEFT OUTER" if onward:
                return left.keys
            case "FULL OUTER" if onward and back:
                return left.keys
        return None

    def _leads(self, source: Rows, target: Rows, condition: Condition) -> bool:
        if not target.tables:
            return True  # rows that no table has are the same in every batch
        if len(target.keys) != 1 or not source.tables:
            return False
        (row,) = target.keys
        return row in target.tables and self._paths.lead(condition, source.same, target.tables[row])

    def _no_path(self, left: Rows, right: Rows, own: Sequence[Node]) -> Untraceable:
        shown = " AND ".join(part.sql for part in own) or "no condition"
        references = ", ".join(map(str, self._view.references)) or "none"
        versions = [t for t in {**left.tables, **right.tables}.values() if self._view.tables[t].holds_versions]
        if versions:
            return Untraceable(
                f"a join with the versions of a table that is not by their key and time: {shown}",
                f"join them by join_versions(stream, {versions[0]}, on='the foreign key')",
            )
        return Untraceable(
            f"a join of {named_tables(left)} with {named_tables(right)} along no reference: {shown}",
            f"compare a foreign key with the whole key it points to; the references are: {references}",
        )

    # ---- subqueries

    def _look_into(self, expression: Node, rows: Rows, *, truth: bool) -> None:
        """Check the subqueries of an expression; where only its ``truth`` counts, null is as good as false."""
        for subquery in subqueries(expression, truth=truth):
            inner, condition = self._inside(subquery.plan, rows)
            values = [self._values.origins(value, rows) for value in subquery.values]
            listed = subquery.plan.output
            condition += Condition(
                tuple(
                    (ours, theirs)
                    for ours, theirs in zip(values, (inner.columns.get(a.id) for a in listed), strict=False)
                    if ours is not None and theirs is not None
                )
            )
            if not self._leads(rows, inner, condition):
                raise self._unreached(subquery.name, inner)
            if subquery.values and not subquery.truth and inner.tables:
                self._require_no_null(subquery, listed, rows, inner)

    def _require_no_null(self, subquery: Subquery, listed: Sequence[Node], rows: Rows, inner: Rows) -> None:
        nullable = [v for v in subquery.values if not self._values.is_present(v, rows)]
        nullable += [a for a in listed[: len(subquery.values)] if not self._values.is_present(a, inner)]
        if nullable:
            first, negation = subquery.values[0].sql, "NOT " if subquery.negated else ""
            raise Untraceable(
                f"{subquery.name} whose answer is null where {nullable[0].sql} is null and the table has any row",
                f"write {negation}EXISTS (SELECT 1 FROM … WHERE key = {first}),"  # noqa: S608
                " which is never null",
            )

    def _inside(self, plan: Node, rows: Rows) -> tuple[Rows, Condition]:
        """The rows of a subquery, and what links them to the row it stands in."""
        linked: list[Condition] = []
        self._outer.append((rows, linked))
        inner = self.rows(plan, ())
        self._outer.pop()
        return inner, reduce(Condition.__add__, linked, Condition())

    def _unreached(self, name: str, inner: Rows) -> Untraceable:
        return Untraceable(
            f"{name} over rows of {named_tables(inner)} that no reference leads to",
            "compare a foreign key of the row with the whole key it points to, EXISTS (SELECT 1 FROM … t WHERE t.key ="
            " foreign_key)",
        )


def _uses(expression: Node, ids: frozenset[int]) -> bool:
    return bool(ids) and any(id in ids for id in expression.references)


def inferred(view: View, plan: Node) -> tuple[Reference, ...]:
    """The foreign keys that the conditions of a view's plan compare with whole keys, from the roots on."""
    return tuple(_in_order(view, _links(view, plan)))


def _links(view: View, plan: Node) -> list[Mapping[str, set[Link]]]:
    """By table, the columns that are compared with its whole key: those that distinguish joined rows, and all."""
    meetings = _Meetings(replace(view, declared=()))
    with suppress(Untraceable):  # is refused by the same tracing, once the references are known
        meetings.rows(plan, ())
    keys = Paths(replace(view, declared=())).keys
    return [
        {name: {one for equal in equals for one in equal.links(name, keys[name])} for name in view.tables}
        for equals in (meetings.equal, meetings.likely)
    ]


class _Meetings(Tracing):
    """The rows of a plan that meet, each time taken for a meeting along a reference.

    ``equal`` has the values that are equal then, of each alternative; the first rows lead to the second ones. Those of
    ``likely`` lead to rows that are joined with others already, and may not distinguish the joined rows.
    """

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.equal: list[_Equal] = []
        self.likely: list[_Equal] = []

    def _leads(self, source: Rows, target: Rows, condition: Condition) -> bool:
        for pairs in _alternatives(condition):
            self.equal.append(_Equal(pairs, source.same, target.keys))
            self.likely.append(_Equal(pairs, source.same, frozenset(target.tables)))
        return True


def _alternatives(condition: Condition) -> list[tuple[Pair, ...]]:
    """The values that are equal in any case, and those of each alternative."""
    alternatives = [condition.pairs]
    for many in condition.either:
        alternatives += [condition.pairs + pairs for one in many for pairs in _alternatives(one)]
    return alternatives


@dataclass(frozen=True)
class _Equal:
    """Values that are equal where rows meet, columns of the first that equal others of these, and the second ones."""

    pairs: tuple[Pair, ...]
    same: Same
    rows: frozenset[str]

    def links(self, target: str, key: Sequence[str]) -> set[Link]:
        """The foreign keys of one row that are compared with a whole key: as written, or by columns equal to them."""
        rows = sorted({b.row for _, theirs in self.pairs for b in theirs if b.table == target and b.row in self.rows})
        sought = [[Origin(row, target, column) for column in key] for row in rows]
        return {
            link for parts in sought for link in self._of_one_row(map(self._equal_to, parts))
            or self._of_one_row(map(self._likewise_equal_to, parts))
        }  # fmt: skip

    def _equal_to(self, origin: Origin) -> set[Origin]:
        return {a for ours, theirs in self.pairs if origin in theirs for a in ours}

    def _likewise_equal_to(self, origin: Origin) -> set[Origin]:
        return {o for a in self._equal_to(origin) for o in (a, *self.same.get(a, ()))}

    def _of_one_row(self, choices: Iterable[set[Origin]]) -> set[Link]:
        combined = islice(product(*(sorted(some, key=str) for some in choices)), _MOST_COMBINED)
        return {
            (chosen[0].table, tuple(o.column for o in chosen))
            for chosen in combined
            if len({(o.row, o.table) for o in chosen}) == 1
        }


def _in_order(view: View, links: Sequence[Mapping[str, set[Link]]]) -> Iterator[Reference]:
    """The references from tables that are reached to those that they reach next, so that none leads back."""
    reached, left = [view.root], [name for name in view.tables if name != view.root]
    while step := _next(reached, left, links):
        target, sources = step
        yield from (Reference(source, columns, target) for source, columns in sources)
        reached.append(target)
        left.remove(target)


def _next(
    reached: Sequence[str], left: Sequence[str], links: Sequence[Mapping[str, set[Link]]]
) -> tuple[str, list[Link]] | None:
    """A table that is reached now, and by which foreign keys; one to which others lead comes after all of them."""
    for some in links:
        near = [name for name in left if any(source in reached for source, _ in some[name])]
        if near:
            target = next((name for name in near if all(source in reached for source, _ in some[name])), near[0])
            sources = [link for link in some[target] if link[0] in reached]
            return target, sorted(sources, key=lambda link: (reached.index(link[0]), link[1]))
    return None
