"""The columns of a view that hold values of a person: by what they are made of, whatever way the value took."""

from __future__ import annotations

from typing import Annotated

from eventstore import Aggregate, Personal, event
from projections import ProjectionGroup, Table, on, sql_view
from projections.spark.views.view_functions import personal_columns
from tests.rows import each_row


class Guest(Aggregate, category="guest"):
    @event
    class Joined:
        name: Annotated[str, Personal(erased="(gone)")]
        city: str
        visits: int


JOINED = on(Guest.Joined)
guests = Table.from_events(Guest, key="id", columns={name: JOINED.take(name) for name in ("name", "city", "visits")})
TEXTS = {
    "SELECT id, city, visits FROM guests": "",
    "SELECT id, name, city FROM guests": "name",
    "SELECT id, upper(name) AS a, concat(city, '!') AS b FROM guests": "a",
    "SELECT id, CASE WHEN name = 'Ann' THEN 1 ELSE visits END AS a, visits AS name FROM guests": "a",
    "WITH g AS (SELECT id AS i, city AS c, name AS n FROM guests) SELECT i AS id, c AS a, n AS b FROM g": "b",
    "SELECT id, pos, x, city FROM guests LATERAL VIEW posexplode(array(name)) AS pos, x": "pos,x",
    "SELECT id, pos, x, name FROM guests LATERAL VIEW posexplode(array(city)) AS pos, x": "name",
    "SELECT id, city FROM guests WHERE name <> 'Ann'": "",
}
GROUPED = {
    "SELECT city, count(*) AS n, max(visits) AS most FROM guests GROUP BY city": "",
    "SELECT city, max(name) AS a, sum(visits) AS b FROM guests GROUP BY city": "a",
    "SELECT city, max(n) AS a FROM (SELECT city, lag(name) OVER (PARTITION BY city ORDER BY id) AS n FROM guests) "
    "GROUP BY city": "a",
    "SELECT city, max(a) AS a, max(b) AS b FROM (SELECT city, name AS a, city AS b FROM guests UNION ALL "
    "SELECT city, city, 'x' FROM guests AS others) GROUP BY city": "a",
}


def personal(small, made):
    return ",".join(sorted(personal_columns(small, ProjectionGroup("g", [made]))[made.name]))


@each_row(("text", "expected"), TEXTS.items(), TEXTS)
def test_columns_of_a_row_a_guest(small, text, expected):
    by = {"by": "id", "key": ("id", "pos")} if "explode" in text else {}
    assert personal(small, sql_view("rows", text, tables={"guests": guests}, **by)) == expected


@each_row(("text", "expected"), GROUPED.items(), GROUPED)
def test_columns_of_a_group(small, text, expected):
    assert (
        personal(
            small,
            sql_view(
                "rows", text, tables={"guests": guests, **({"others": guests} if "others" in text else {})}, by="city"
            ),
        )
        == expected
    )


def test_a_view_over_a_view_shows_what_that_one_reads(small):
    shown = sql_view("shown", "SELECT id, city, name AS called FROM guests", tables={"guests": guests})
    over = sql_view("over", "SELECT id, city AS c, called AS n FROM shown", tables={"shown": shown})
    assert personal(small, over) == "n"
