"""Small changelog tables that play, and random queries over three of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any

import sqlalchemy as sa

from projections import Table
from projections.declaring.tables import ChangelogTable

Row = dict[str, Any]
Key = tuple[Any, ...]
FEW, FIRST = 26, 0.85
KINDS = {
    "long": sa.BigInteger,
    "int": sa.Integer,
    "money": sa.Numeric(12, 2),
    "text": sa.Text,
    "date": sa.Date,
    "time": sa.DateTime,
}


@dataclass(frozen=True)
class Toy:
    """A table, all keys that its rows may have, and a function that draws the other columns of a row."""

    table: ChangelogTable
    keys: Sequence[Key]
    draw: Callable[[random.Random, Key], Sequence[Any]]

    def row(self, chance: random.Random, key: Key) -> Row:
        """A row of the key."""
        return dict(zip(self.table.columns, (*key, *self.draw(chance, key)), strict=True))


@dataclass(frozen=True)
class Change:
    """A row that is inserted or updated, or deleted if it is ``gone``."""

    table: ChangelogTable
    row: Row
    gone: bool = False


def toy(
    topic: str, columns: str, keys: Sequence[Any], draw: Callable[[random.Random, Key], Sequence[Any]]
) -> tuple[str, Toy]:
    """A table by its name, from ``name: column kind, …``: the first columns, as many as a key has, are the key."""
    name, _, declared = columns.partition(":")
    kinds = dict(column.split() for column in declared.split(","))
    wholes = [key if isinstance(key, tuple) else (key,) for key in keys]
    own = list(kinds)[: len(wholes[0])]
    model = sa.Table(name, sa.MetaData(), *(sa.Column(c, KINDS[k], primary_key=c in own) for c, k in kinds.items()))
    return name, Toy(Table.from_changelog(model, topic=f"{topic}.{name}"), wholes, draw)


class Play:
    """The rows of some toys at a time. Each batch of changes inserts, updates and deletes rows of every table."""

    def __init__(self, toys: Mapping[str, Toy], seed: int) -> None:
        self.toys = toys
        self.rows: dict[str, dict[Key, Row]] = {name: {} for name in toys}
        self._chance = random.Random(seed)

    def begin(self) -> list[Change]:
        """The first rows: all of a table of few, and most of another one."""
        found = [
            self._put(name, key)
            for name, toy in self.toys.items()
            for key in toy.keys
            if len(toy.keys) < FEW or self._chance.random() < FIRST
        ]
        self._chance.shuffle(found)
        return found

    def batch(self) -> list[Change]:
        """The next changes, those of all tables mixed. Those of one table keep their order."""
        queues = [list(self._of(name)) for name in self.toys]
        turns = [number for number, queue in enumerate(queues) for _ in queue]
        self._chance.shuffle(turns)
        following = [iter(queue) for queue in queues]
        return [next(following[turn]) for turn in turns]

    def current(self) -> Mapping[str, tuple[ChangelogTable, list[Row]]]:
        """The table and the rows by name."""
        return {name: (toy.table, list(self.rows[name].values())) for name, toy in self.toys.items()}

    def _of(self, name: str) -> Iterator[Change]:
        rows, chance = self.rows[name], self._chance
        absent = [key for key in self.toys[name].keys if key not in rows]
        for key in chance.sample(absent, (len(absent) + 1) // 2):
            yield self._put(name, key)
        for key in chance.sample(list(rows), max(1, len(rows) // 8)):
            yield self._changed(name, key)
        for key in chance.sample(list(rows), max(1, len(rows) // 12)):
            yield Change(self.toys[name].table, rows.pop(key), gone=True)

    def _put(self, name: str, key: Key) -> Change:
        row = self.rows[name][key] = self.toys[name].row(self._chance, key)
        return Change(self.toys[name].table, row)

    def _changed(self, name: str, key: Key) -> Change:
        drawn = self.toys[name].row(self._chance, key)
        columns = self._chance.sample(list(drawn), min(3, len(drawn)))
        self.rows[name][key] = self.rows[name][key] | {c: drawn[c] for c in columns}
        return Change(self.toys[name].table, self.rows[name][key])


# ---- queries that nobody would write by hand, over three tables of nulls and repeated values, from a seed


COLUMNS = {"id": "long", "a": "long", "b": "long", "m": "money", "s": "text"}
LITERALS = {"long": ("0", "1", "2", "3"), "money": ("0.50", "1.25", "2.00"), "text": ("'x'", "'y'", "'z'")}
WRAPPED = {
    "long": ("{} + 1", "coalesce({}, 7)", "CASE WHEN {} > 1 THEN 1 ELSE 0 END"),
    "money": ("{} * 2", "coalesce({}, 0.00)", "-{}"),
    "text": ("upper({})", "coalesce({}, 'q')", "concat({}, '!')"),
}
AGGREGATES = {
    "long": ("count(*)", "count({})", "count(DISTINCT {})", "sum({})", "min({})", "max({})", "avg({})"),
    "money": ("count({})", "count(DISTINCT {})", "sum({})", "min({})", "max({})", "avg({})"),
    "text": ("count({})", "count(DISTINCT {})", "min({})", "max({})"),
}
HAVING = ("count(*) > 1", "count(*) < 6", "max({}) > 1", "sum({}) IS NOT NULL")
JOINS = ("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN")
Scope = Mapping[str, Mapping[str, str]]  # the kinds of the columns of each alias


def little_tables() -> dict[str, Toy]:
    """Three tables, in which a value in three is null."""

    def draw(chance: random.Random, _: object) -> Sequence[object]:
        price = Decimal(chance.choice(LITERALS["money"]))
        values = (chance.randrange(9), chance.randrange(4), price, chance.choice("xyz"))
        return [None if chance.random() < 0.3 else value for value in values]

    columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
    sizes = {"t": 30, "u": 12, "v": 8}
    return dict(toy("little", f"{name}: {columns}", range(size), draw) for name, size in sizes.items())


class RandomQueries:
    """Draws queries, every alias of which is another one. ``most`` bounds how deep derived tables nest."""

    def __init__(self, seed: int, *, most: int = 2) -> None:
        self._chance, self._numbers, self._most = random.Random(seed), count(), most

    def query(self) -> str:
        """A SELECT, or a union of two in a derived table."""
        if self._happens(0.15):
            kinds = self._kinds()
            return f"SELECT * FROM ({self._union(kinds, 1)}) {self._alias('d')}"
        return self._select(self._kinds(), 0, keyed=self._happens(0.6))

    # ---- queries

    def _union(self, kinds: Sequence[str], depth: int) -> str:
        return " UNION ALL ".join(self._plain(kinds, depth) for _ in range(2))

    def _select(self, kinds: Sequence[str], depth: int, *, keyed: bool = False) -> str:
        """Columns c0, c1, … of the kinds: of rows, which ``keyed`` have the key of the first table, or of groups."""
        forms = (self._plain, self._plain, self._distinct, self._grouped, self._grouped)
        form: Callable[..., str] = self._chance.choice(forms)
        return form(kinds, depth, keyed=keyed) if form == self._plain else form(kinds, depth)

    def _plain(self, kinds: Sequence[str], depth: int, *, keyed: bool = False) -> str:
        scope, rows = self._rows(depth, keyed=keyed)
        key = [f"{next(iter(scope))}.id"] if keyed else []
        return f"SELECT {', '.join(key + self._items(kinds, scope))} {rows}"

    def _distinct(self, kinds: Sequence[str], depth: int) -> str:
        scope, rows = self._rows(depth)
        return f"SELECT DISTINCT {', '.join(self._items(kinds, scope))} {rows}"

    def _grouped(self, kinds: Sequence[str], depth: int) -> str:
        """The first columns are groups, the others are counts, sums and the like of any kind."""
        scope, rows = self._rows(depth)
        known = {kind for columns in scope.values() for kind in columns.values()}
        keys = [self._value(kind, scope) for kind in kinds[:-1] if kind in known]  # a number would be a place
        shown = [*keys, *(self._aggregate(scope) for _ in range(2))]
        items = ", ".join(f"{item} AS c{number}" for number, item in enumerate(shown))
        having = self._chance.choice(HAVING).format(self._column("long", scope)) if self._happens(0.4) else ""
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {items} {rows}{by}{having and f' HAVING {having}'}"

    # ---- clauses

    def _rows(self, depth: int, *, keyed: bool = False) -> tuple[Scope, str]:
        """FROM and WHERE, and what they bring into scope."""
        scope: dict[str, Mapping[str, str]] = {}
        rows = f"FROM {self._source(scope, self._most if keyed else depth)}"
        for _ in range(self._chance.choice((0, 0, 1, 1, 2))):
            known, kind = dict(scope), self._chance.choice(JOINS)
            source = self._source(scope, depth)
            on = "" if kind == "CROSS JOIN" else f" ON {self._joined(known, scope)}"
            rows += f" {kind} {source}{on}"
        where = " AND ".join(self._predicate(scope) for _ in range(self._chance.choice((0, 1, 1, 2))))
        return scope, f"{rows}{where and f' WHERE {where}'}"

    def _source(self, scope: dict[str, Mapping[str, str]], depth: int) -> str:
        """A table or a derived table, whose columns come into scope."""
        if depth >= self._most or self._happens(0.75):
            table, alias = self._table()
            scope[alias] = COLUMNS
            return f"{table} {alias}"
        alias, kinds = self._alias("d"), ["long", *self._kinds()]
        query = self._union(kinds, depth + 1) if self._happens(0.2) else self._plain(kinds, depth + 1)
        scope[alias] = {f"c{number}": kind for number, kind in enumerate(kinds)}
        return f"({query}) {alias}"

    def _joined(self, known: Scope, scope: Scope) -> str:
        """Mostly a column with a key, otherwise any two of a kind."""
        alias = next(reversed(scope))
        if "id" in scope[alias] and self._happens(0.6):
            return f"{self._column('long', known)} = {alias}.id"
        kind = self._chance.choice([*scope[alias].values()])
        also = f" AND {self._compared(scope)}" if self._happens(0.3) else ""
        return f"{self._column(kind, known)} = {self._column(kind, {alias: scope[alias]})}{also}"

    def _predicate(self, scope: Scope) -> str:
        form = self._chance.randrange(8)
        if form < 4:
            return self._compared(scope)
        if form == 4:
            return f"({self._compared(scope)} OR {self._compared(scope)})"
        return self._asked(scope)

    def _asked(self, scope: Scope) -> str:
        """IN or EXISTS, with or without NOT."""
        (table, alias), kind = self._table(), self._chance.choice(("long", "text"))
        negated = self._chance.choice(("", "NOT "))
        inner = {alias: COLUMNS}
        where = f" WHERE {self._compared(inner)}" if self._happens(0.5) else ""
        if self._happens(0.5):
            column = self._chance.choice(("id", self._column(kind, inner).partition(".")[2]))
            outer = self._column(COLUMNS[column], scope)
            return f"{outer} {negated}IN (SELECT {alias}.{column} FROM {table} {alias}{where})"
        also = f" AND {self._compared(inner)}" if where else ""
        equal = f"{self._chance.choice((f'{alias}.id', f'{alias}.a', f'{alias}.b'))} = {self._column('long', scope)}"
        return f"{negated}EXISTS (SELECT 1 FROM {table} {alias} WHERE {equal}{also})"

    def _compared(self, scope: Scope) -> str:
        kind = self._chance.choice(("long", "money", "text"))
        column = self._column(kind, scope)
        if self._happens(0.2):
            return f"{column} IS {self._chance.choice(('', 'NOT '))}NULL"
        return f"{column} {self._chance.choice(('=', '<>', '<', '>='))} {self._chance.choice(LITERALS[kind])}"

    # ---- values

    def _items(self, kinds: Sequence[str], scope: Scope) -> list[str]:
        return [f"{self._value(kind, scope)} AS c{number}" for number, kind in enumerate(kinds)]

    def _value(self, kind: str, scope: Scope) -> str:
        column = self._column(kind, scope)
        return self._chance.choice(WRAPPED[kind]).format(column) if self._happens(0.3) else column

    def _aggregate(self, scope: Scope) -> str:
        kind = self._chance.choice(list(AGGREGATES))
        return self._chance.choice(AGGREGATES[kind]).format(self._column(kind, scope))

    def _column(self, kind: str, scope: Scope) -> str:
        found = [
            f"{alias}.{column}" for alias, columns in scope.items() for column in columns if columns[column] == kind
        ]
        return self._chance.choice(found or LITERALS[kind])

    def _kinds(self) -> list[str]:
        return [self._chance.choice(list(LITERALS)) for _ in range(self._chance.randrange(1, 4))]

    def _table(self) -> tuple[str, str]:
        """A table and an alias of its own, which means no other table in any query: a group has one meaning of each."""
        table = self._chance.choice("ttuuv")
        return table, self._alias(table)

    def _alias(self, of: str) -> str:
        return f"{of}{next(self._numbers)}"

    def _happens(self, share: float) -> bool:
        return self._chance.random() < share
