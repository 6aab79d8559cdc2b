"""Schemas, views and histories nobody would write by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import sqlalchemy as sa
from hypothesis import strategies as st

from projections import ProjectionGroup, Table, sql_view
from tests.conformance.followed_views import Batch, Change, Followed, World, by_duckdb

NUMBERS, NAMES = st.integers(0, 3), st.sampled_from(["", "a", "b'", 'c"'])
_KINDS = {"number": (sa.BigInteger, NUMBERS), "name": (sa.Text, NAMES)}
HOWS = ("JOIN", "LEFT JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN")
STEPS = ("staged", "kept", "committing", "committed")


@dataclass
class Schema:
    """The columns of a table by their kinds, its key first."""

    key: dict[str, str]
    others: dict[str, str] = field(default_factory=lambda: {"amount": "number"})

    def table(self, number: int) -> Table:
        """The table, captured by a connector."""
        columns = [sa.Column(c, _KINDS[kind][0], primary_key=True) for c, kind in self.key.items()]
        columns += [sa.Column(c, _KINDS[kind][0]) for c, kind in self.others.items()]
        return Table.from_changelog(sa.Table(f"t{number}", sa.MetaData(), *columns), topic=f"shop.public.t{number}")


@dataclass
class _Join:
    how: str
    source: int
    columns: tuple[str, ...]
    target: int


@st.composite
def worlds(draw: st.DrawFn, *, rich: bool = False) -> World:
    """Up to four tables, joined under up to five names; grouped, and the groups joined again; ``rich`` has them all."""
    schemas = [Schema(draw(_keys())) for _ in range(draw(st.integers(2 if rich else 1, 4)))]
    roles = [0, *draw(st.lists(st.integers(0, len(schemas) - 1), min_size=len(schemas) > 1, max_size=4))]
    joins = [draw(_joins(schemas, roles, number)) for number in range(1, len(roles))]
    tables = [schema.table(number) for number, schema in enumerate(schemas)]
    named = {f"a{number}": tables[role] for number, role in enumerate(roles)}
    where = draw(st.sampled_from(["", "", " WHERE a0.amount IS NULL OR a0.amount <> 1"]))
    sql = {"joined": _joined(named, joins) + where}
    joined = sql_view("joined", sql["joined"], tables=named)
    views = [joined]
    columns = ["amount_0", *sorted({"amount_1"} & set(_selected(named)))]
    group = draw(st.sampled_from(columns if rich else [None, *columns]))
    if group:
        having = "" if rich else draw(st.sampled_from(["", "", " HAVING count(*) > 1"]))
        sql["grouped"] = _grouped(group, draw(_measures(sorted(_selected(named))))) + having
        views.append(sql_view("grouped", sql["grouped"], tables={"joined": joined}))
        if rich or draw(st.booleans()):
            keys = ", ".join(f"r.{c}" for c in tables[0].key)
            sql["again"] = f"SELECT {keys}, g.n FROM r LEFT JOIN grouped g ON r.amount = g.{group}"
            views.append(sql_view("again", sql["again"], tables={"r": tables[0], "grouped": views[1]}))
            named["r"] = tables[0]
    if rich or draw(st.booleans()):
        sql["met"], roots = draw(_meetings(tables))
        views.append(sql_view("met", sql["met"], tables=roots))
        named |= roots
    return by_duckdb(ProjectionGroup("generated", views), sql, named, tables=tuple(tables))


@st.composite
def histories(draw: st.DrawFn, world: World) -> list[Batch]:
    """Batches of changes of a world's tables."""
    change = st.integers(0, len(world.tables) - 1).flatmap(lambda number: _changes(number, world.tables[number]))
    batch = st.builds(Batch, st.lists(change, min_size=1, max_size=12), st.sampled_from([None, None, *STEPS]))
    return draw(st.lists(batch, min_size=2, max_size=6))


@st.composite
def _keys(draw: st.DrawFn) -> dict[str, str]:
    kinds = draw(st.lists(st.sampled_from(list(_KINDS)), min_size=1, max_size=2))
    return {f"k{number}": kind for number, kind in enumerate(kinds)}


@st.composite
def _joins(draw: st.DrawFn, schemas: list[Schema], roles: list[int], number: int) -> _Join:
    """A join of one more table to one before it: by a foreign key of its own, or key to key where they are alike."""
    before = draw(st.integers(0, number - 1))
    source, target = schemas[roles[before]], schemas[roles[number]]
    # A full join before another one is a stage of its own, which no query here answers.
    how = draw(st.sampled_from(HOWS if len(roles) == 2 else HOWS[:2]))
    if list(source.key.values()) == list(target.key.values()) and draw(st.booleans()):
        return _Join(how, before, tuple(source.key), number)
    columns = {f"to_{number}_{key}": kind for key, kind in target.key.items()}
    source.others.update(columns)
    return _Join(how, before, tuple(columns), number)


@st.composite
def _meetings(draw: st.DrawFn, tables: list[Table]) -> tuple[str, dict[str, Table]]:
    """Two tables of one key, which may be the same, joined in full."""
    first = draw(st.sampled_from(tables))
    alike = [table for table in tables if table.key == first.key and _kinds(table) == _kinds(first)]
    found = {"m0": first, "m1": draw(st.sampled_from(alike))}
    keys = ", ".join(f"coalesce(m0.{c}, m1.{c}) AS {c}" for c in first.key)
    text = f"SELECT {keys}, m0.amount AS one, m1.amount AS other"
    joined = f" FROM m0 FULL JOIN m1 USING ({', '.join(first.key)})"
    return text + joined + draw(st.sampled_from(["", " WHERE m0.amount IS NULL OR m0.amount <> 1"])), found


def _kinds(table):
    return [table.columns[c].kind for c in table.key]


def _selected(named):
    """Columns of numbers that the joined view has, by what they are called there."""
    return {f"amount_{number}": f"{role}.amount" for number, role in enumerate(named)}


def _joined(named, joins):
    root, sides = named["a0"], [named[f"a{join.target}"] for join in joins]
    columns = [f"a0.{c}" for c in root.key]
    for join, side in zip(joins, sides, strict=True):
        if join.how.startswith(("FULL", "RIGHT")):
            columns += [f"a{join.target}.{c} AS side_{join.target}_{c}" for c in side.key]
    columns += [f"{source} AS {name}" for name, source in _selected(named).items()]
    text = f"SELECT {', '.join(columns)} FROM a0"
    for join, side in zip(joins, sides, strict=True):
        pairs = zip(join.columns, side.key, strict=True)
        condition = " AND ".join(f"a{join.source}.{c} = a{join.target}.{key}" for c, key in pairs)
        text += f" {join.how} a{join.target} ON {condition}"
    return text


@st.composite
def _measures(draw: st.DrawFn, columns: list[str]) -> str:
    """Of a column: aggregates that what changes is added to, and maybe one that has groups computed whole."""
    of, by = draw(st.sampled_from(columns)), draw(st.sampled_from(columns))
    # Rows that come first together have the same value: without an order of all rows, any may be the first.
    value = f"coalesce({of}, -1)"
    order = f"struct(coalesce({by}, -1), {value})"
    more = draw(st.sampled_from([
        "", f", avg({of}) AS mean", f", count(DISTINCT {of}) AS kinds",
        f", array_join(sort_array(collect_list(CAST({of} AS STRING))), ',') AS each",
        f", min_by({value}, {order}) AS first, max_by({value}, {order}) AS last",
    ]))  # fmt: skip
    return f"count({of}) AS some, sum({of}) AS total, min({of}) AS least, max({of}) AS most{more}"


def _grouped(by, measures):
    return f"SELECT {by}, count(*) AS n, {measures} FROM joined GROUP BY {by}"


def _changes(number, table):
    kinds = {c: _KINDS["number" if kind.kind == "long" else "name"][1] for c, kind in table.columns.items()}
    key = st.fixed_dictionaries({c: kinds[c] for c in table.key})
    values = st.fixed_dictionaries({c: st.none() | kinds[c] for c in table.payload})
    late, times = st.sampled_from([0] * 7 + [1, 2, 5]), st.sampled_from([1] * 7 + [2])
    return st.builds(Change, st.just(number), key, st.one_of(st.none(), values, values, values), late, times)


@st.composite
def lives(draw: st.DrawFn, worlds: st.SearchStrategy[World]) -> tuple[World, list[Batch]]:
    """A world with a history."""
    world = draw(worlds)
    return world, draw(histories(world))


RICH = lives(worlds(rich=True))
FOLLOWED = Followed(lives(worlds()), 8, RICH, in_postgresql=RICH)
