"""Patterns in live views, and the rows that a plain matcher has over all rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

from projections import ProjectionGroup, field, label, match_pattern, previous, rows_of, view
from projections.declaring.matching import matcher
from projections.declaring.timing.automaton import Automaton
from projections.declaring.timing.checking import columns_computed
from projections.declaring.timing.operands import PREVIOUS
from projections.declaring.timing.patterns import as_pattern
from projections.spark.timing.matches import LabelOfEach, Layout, Matching, Measured, OfEach, OfFirst
from tests.captured import captured
from tests.conformance import pattern_oracle
from tests.conformance.followed_views import World, followed, histories_of, random_batches
from tests.conformance.view_oracle import in_order
from tests.reference import newest_per_key

SECOND = 1_000_000

orders = captured("orders", "shop", "moment", "amount")
TABLES = {"orders": orders}
ROWS = (orders,)

one, two, three = (label(name, field("amount") == n) for n, name in enumerate(("one", "two", "three"), 1))
down, up = label("down", field("amount") < previous("amount")), label("up", field("amount") > previous("amount"))
more = label("more", rows_of().total("amount") + field("amount") > 3)
MEASURES = {"rows": rows_of().count(), "total": rows_of().total("amount"), "last_id": rows_of().last("id")}


@dataclass(frozen=True)
class Case:
    """A pattern and how its matches are given out."""

    pattern: object
    per: str = "match"


CASES = {
    "followed": Case(one.followed_by(two).not_between(field("amount") == 3).within("2 seconds")),
    "strictly": Case(one.one_or_more().then(two.optional()).then(three).within("1 day")),
    "dipped": Case(down.one_or_more().then(up.one_or_more()).within("1 day").skip_to_last("up")),
    "added": Case(label("any_row").then(more).within("1 second").skip_to_next_row()),
    "absent": Case((one | two).within("1 second").not_followed_by(field("amount") > 2)),
    "rows_of_each": Case(one.then(label("any_row").zero_or_more().reluctant()).then(three).within("3 seconds"), "row"),
}


def declared(name, case):
    def function(orders):
        from pyspark.sql import functions as F

        timed = orders.withColumn("at", F.timestamp_seconds("moment"))
        found = match_pattern(timed, case.pattern, by="shop", time="at", key="id", measures=MEASURES, per=case.per)
        return found.drop("at")

    function.__name__ = name
    own = "id" if case.per == "match" else ("match_id", "id")
    return view(by="shop", key=own, tables=TABLES)(function)


GROUP = ProjectionGroup("patterns", [declared(name, case) for name, case in CASES.items()])


# ---- the product's automaton over slices, without Spark


def layout_of(case):
    measured = {name: Measured(taken) for name, taken in MEASURES.items()}
    computed = tuple(columns_computed(case.pattern))
    if case.per == "match":
        return Layout(("shop",), computed, {"shop": OfFirst("shop"), "id": OfFirst("id"), **measured})
    own = {name: OfEach(name) for name in ("id", "moment", "amount")}
    first = {"shop": OfFirst("shop"), "match_id": OfFirst("id")}
    return Layout(("shop",), computed, {**first, **own, "label": LabelOfEach(), **measured})


def by_the_product(case):
    """What a batch makes of a slice: the function of Python workers, over rows that are sorted and decided here."""
    matching, before = Matching(as_pattern(case.pattern), layout_of(case)), Automaton(as_pattern(case.pattern)).before

    def matched(slices):
        rows = []
        for _, partition in partitions(slices["orders"].to_pylist()):
            for number, (row, old) in enumerate(itertools.pairwise([{}, *partition])):
                row, old = old, row
                seen = row | {PREVIOUS + name: old.get(name) for name in row}
                decided = {f"_decided_{n}": matcher(part)("row", seen) for n, part in enumerate(before)}
                rows.append({**row, "_number": number, "_moment": row["moment"] * SECOND, **decided})
        names = ["id", "shop", "moment", "amount", "_number", "_moment"]
        schema = pa.schema(
            [(name, pa.int64()) for name in names] + [(f"_decided_{n}", pa.bool_()) for n in range(len(before))]
        )
        batches = pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=3)
        return pa.Table.from_batches(list(matching(iter(batches))), schema_of(case))

    return matched


def schema_of(case):
    kinds = {"label": pa.string()}
    return pa.schema([(name, kinds.get(name, pa.int64())) for name in layout_of(case).outputs])


# ---- the plain matcher over all rows


def partitions(rows):
    """The rows with a time of each shop, in their order."""

    def shop(row):
        return row["shop"] is not None, row["shop"] or 0

    timed = sorted(
        (row for row in rows if row["moment"] is not None), key=lambda row: (shop(row), row["moment"], row["id"])
    )
    return [(key, list(some)) for key, some in itertools.groupby(timed, key=lambda row: row["shop"])]


def expected(log):
    """The rows of every view."""
    records = [(offset, key.decode(), value) for offset, (key, value) in enumerate(log.records(orders.topic))]
    rows = list(newest_per_key(records).values())
    return {name: in_order(itertools.chain(*(rows_found(case, some) for _, some in partitions(rows))))
            for name, case in CASES.items()}  # fmt: skip


def rows_found(case, rows):
    timed = [{**row, "at": row["moment"] * SECOND} for row in rows]
    for match in pattern_oracle.matches(as_pattern(case.pattern), timed):
        taken = [rows[at] for at, _ in match]
        total = pattern_oracle.aggregate("total", [row["amount"] for row in taken])
        measures = (len(taken), total, taken[-1]["id"])
        shop, first = taken[0]["shop"], taken[0]["id"]
        if case.per == "match":
            yield (shop, first, *measures)
        else:
            for row, (_, name) in zip(taken, match, strict=True):
                yield (shop, first, row["id"], row["moment"], row["amount"], name, *measures)


VALUES = {"shop": [None, 0, 0, 0, 1], "moment": [None, 0, 1, 1, 2, 3], "amount": [None, 0, 1, 1, 2, 3]}
WORLD = World(GROUP, ROWS, {name: by_the_product(case) for name, case in CASES.items()}, expected)
FOLLOWED = followed(
    WORLD,
    histories_of(ROWS, lambda column: st.sampled_from(VALUES[column]), ids=9, changes=8),
    8,
    random_batches(7, ROWS, VALUES.get, batches=5, ids=9, changes=10),
)
