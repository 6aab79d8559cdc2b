"""Joins in every form that SQL allows: names with and without tables, USING, parentheses, any case."""

from __future__ import annotations

import sqlalchemy as sa
from hypothesis import strategies as st

from projections import ProjectionGroup, Table, sql_view
from tests.conformance.followed_views import Followed, World, by_duckdb
from tests.conformance.generated_views import lives


def captured(name, key, *columns):
    """A table of numbers, and of texts where a column is called s."""
    others = [sa.Column(c, sa.Text if c == "s" else sa.BigInteger) for c in columns]
    model = sa.Table(name, sa.MetaData(), sa.Column(key, sa.BigInteger, primary_key=True), *others)
    return Table.from_changelog(model, topic=f"shop.public.{name}")


NAMED = {
    "t": captured("t", "id", "u_id", "v_id", "a", "s"),
    "u": captured("u", "id", "w_id", "b"),
    "v": captured("v", "v_id", "d"),
    "w": captured("w", "id", "c"),
}

TO_U = [
    "u ON t.u_id = u.id", "u ON (u_id = u.id)", "u ON ((u.id) = (t.u_id)) AND true", "u ON u.id IN (u_id)",
    "(SELECT id AS u_id, id, w_id, b FROM u) u USING (u_id)",
]  # fmt: skip
TO_W = ["w ON u.w_id = w.id", "w ON w_id = w.id", "w ON (w.id = w_id)"]
TO_V = ["v USING (v_id)", "v ON t.v_id = v.v_id", "v ON (v.v_id) = t.v_id", "(SELECT * FROM v) x USING (v_id)"]
SIDES = ("RIGHT JOIN", "FULL JOIN")


@st.composite
def spelled_worlds(draw: st.DrawFn) -> World:
    """Views of joined rows. What groups them is cut by Spark (`test_stages`)."""
    written = {
        "joined": f"SELECT {_cased(draw, 't.id')} AS id{_columns(draw)} {draw(_rows())}",
    }
    side, on = draw(st.sampled_from(SIDES)), draw(st.sampled_from(TO_U[:3]))
    written["beside"] = f"SELECT t.id, u.id AS side, a AS a, b AS b FROM {_cased(draw, f't {side} {on}')}"
    views = [sql_view(name, text, tables=NAMED) for name, text in written.items()]
    group = ProjectionGroup("spelled", views)
    return by_duckdb(group, written, NAMED)


def _cased(draw, text):
    change = draw(st.sampled_from([str, str, str.upper, str.title]))
    return text if "'" in text else change(text)


def _columns(draw):
    return "".join(f", {_cased(draw, column)} AS {column}" for column in "abcds")


@st.composite
def _rows(draw: st.DrawFn) -> str:
    """FROM and WHERE: t joined with the other tables."""
    how = st.sampled_from(["JOIN", "LEFT JOIN"])
    joins = [f"{draw(how)} {draw(st.sampled_from(to))}" for to in (TO_U, TO_W, TO_V)]
    where = draw(st.sampled_from(["", "", " WHERE a IS NULL OR t.a <> 1", " WHERE (T.A > 0)"]))
    rows = _cased(draw, f"FROM t {' '.join(joins)}{where}")
    return rows if draw(st.booleans()) else rows.replace("FROM t", "FROM (SELECT * FROM t) t")


FOLLOWED = Followed(lives(spelled_worlds()), 8, lives(spelled_worlds()))
