"""Small changelog tables that play: from a seed, rows come, change and go, batch after batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
