"""Histories of prices in DuckDB's SQL, over versions that are staged instead of the newest rows."""

from __future__ import annotations

import itertools
import json

from hypothesis import strategies as st

from projections.declaring.tables import BELOW_STREAMED
from tests.conformance.followed_views import World, drawn_batches, followed
from tests.conformance.history_ledger import GROUP, expected, price_history, prices, stored, write
from tests.conformance.history_oracle import MINUTE
from tests.conformance.relational_batches import RelationalBatches


def valid_over(slice, named):
    """A history in DuckDB's SQL, over the versions of whole keys."""
    return f"""
        WITH timed AS (
            SELECT *, CASE WHEN _pos < 0 AND row_number() OVER earlier = 1 THEN NULL ELSE _valid_from END AS a,
                min(_valid_from) OVER (earlier ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS b
            FROM {slice} WINDOW earlier AS (PARTITION BY shop, sku ORDER BY _epoch, _pos)),
        lasting AS (SELECT * FROM timed WHERE NOT _deleted AND (a IS NULL OR b IS NULL OR a < b)),
        measured AS (SELECT *, max(greatest(a, b)) OVER (PARTITION BY shop, sku) AS newest FROM lasting)
        SELECT shop, sku, price, make_timestamp(a)::TIMESTAMPTZ AS {named}_from, make_timestamp(b)::TIMESTAMPTZ
            AS {named}_to, b IS NULL AS is_current
        FROM measured"""


SQL = {
    "price_history": valid_over("price_history_versions", "valid"),
    "recent_prices": valid_over("recent_prices_versions", "known") + f" WHERE b IS NULL OR b + {2 * MINUTE} >= newest",
}


class RelationalHistories(RelationalBatches):
    """Stages versions instead of the newest row of each key."""

    def _stage(self, tables, since):
        import pyarrow as pa

        from projections.stores import staging

        found = {}
        for offset, (key, value) in enumerate(self._log.records(tables.table.topic)[since:], since):
            if value is not None:
                row = version(key, json.loads(value), offset)
                found.setdefault((key, row["_pos"]), row)
        if found:
            target = self._store.target(tables.staged)
            columns = {**tables.table.stored, **POSITION}
            schema = pa.schema([(name, column.arrow()) for name, column in columns.items()])
            target.append(pa.Table.from_pylist(list(found.values()), schema))
        with self._store.staging(self._run) as connection:
            staging.complete(connection, tables)


def version(key, change, offset):
    source = change["source"]
    pos = source["lsn"] - (0 if source["snapshot"] == "false" else BELOW_STREAMED)
    place = {"_epoch": 0, "_pos": pos, "_offset": offset, "_deleted": change["op"] == "d"}
    return {**(change["after"] or {}), **json.loads(key), "_valid_from": source["ts_us"], "_unset": None, **place}


POSITION = {c: prices.columns["price"] for c in ("_epoch", "_pos", "_offset")} | {
    "_deleted": price_history.table("price_history_versions").sliced["_deleted"]
}


@st.composite
def lives(draw):
    """Batches of changes of a few rows: snapshots, deletions, late and repeated ones, commits of one time, kills."""
    lsn = itertools.count(1_000, 10)

    def change():
        place = next(lsn) - draw(st.sampled_from([0, 0, 0, 23, 46]))
        return {
            "shop": draw(st.integers(1, 2)), "sku": draw(st.sampled_from(["a", "b"])), "lsn": place,
            "price": draw(st.none() | st.integers(1, 3)), "minute": draw(st.integers(0, 6)),
            "snapshot": draw(st.integers(0, 5)) == 0, "times": draw(st.integers(1, 2)),
        }  # fmt: skip

    return drawn_batches(draw, change, batches=7)


def written(log):
    def all_of(batch):
        for change in batch.changes:
            write(log, change)

    return all_of


def shown(store, layout):
    return stored(store, layout, SQL)


WORLD = World(GROUP, (prices,), SQL, expected, shown, written, RelationalHistories)
FOLLOWED = followed(WORLD, lives(), 12)
