"""Views that look at the rows of one partition, and values that are another each time."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import ProjectionGroup, Table, view
from projections.errors import InvalidDefinition
from projections.spark.views.view_functions import view_columns
from tests.captured import captured
from tests.rows import each_row

orders = captured("orders", "shop", "amount", "at", tags=sa.Text, size=sa.Double)
visits = captured("visits", "shop", "at", "day")
lines = captured("lines", "shop", key=("order_id", "nr"))
TABLES = {"orders": orders, "visits": visits, "lines": lines}


def planned(small, text, *, by="shop", key=None):
    """The columns of a view in SQL over all three tables, and leaves alone those that it does not name."""

    def chosen(orders, visits, lines):
        frames = (orders, visits, lines)
        return orders.sparkSession.sql(text, **dict(zip(TABLES, frames, strict=True)))

    declared = view(tables=TABLES, by=by, key=key)(chosen)
    return view_columns(small, ProjectionGroup("partitions", [declared]))["chosen"]


EITHER = (
    "(SELECT shop, id, CAST(NULL AS STRUCT<i: BIGINT>) AS other FROM {orders} UNION ALL"
    " SELECT shop, CAST(NULL AS BIGINT), struct(id) FROM {visits})"
)
NUMBERED = "SELECT shop, id, row_number() OVER (PARTITION BY shop ORDER BY id) AS n FROM"
GROUPS = "SELECT shop, amount, count(*) AS n FROM {orders} GROUP BY shop, amount"
WITHIN = {
    "rows as they are": ("SELECT shop, id FROM {orders} WHERE amount > 1", "id"),
    "a row number as key": (
        "SELECT shop, row_number() OVER (PARTITION BY shop ORDER BY amount, id) AS n, id AS o FROM {orders}", "n"),
    "the first of each tag": (
        "SELECT * EXCEPT (n) FROM (SELECT shop, tags, id, row_number() OVER (PARTITION BY shop, tags ORDER BY at, id)"
        " AS n FROM {orders}) WHERE n = 1", "tags"),
    "a rank, of equal rows alike": (
        "SELECT shop, id, rank() OVER (PARTITION BY shop ORDER BY amount) AS r FROM {orders}", "id"),
    "a running total of floats in a certain order": (
        "SELECT shop, id, sum(size) OVER (PARTITION BY shop ORDER BY at, id) AS total FROM {orders}", "id"),
    "a total of the last ten": (
        "SELECT shop, id, sum(amount) OVER (PARTITION BY shop ORDER BY at RANGE 10 PRECEDING) AS total FROM {orders}",
        "id"),
    "a window by more": (
        "SELECT shop, id, max(amount) OVER (PARTITION BY tags, shop) AS most FROM {orders}", "id"),
    "one row a group": ("SELECT shop, count(*) AS n FROM {orders} GROUP BY shop", None),
    "groups of a partition": (GROUPS, "amount"),
    "distinct numbers of one zero": (
        "SELECT shop, max(CAST(s AS string)) AS s FROM (SELECT shop, size + 0D AS s FROM {orders}"
        " GROUP BY shop, size + 0D) GROUP BY shop", None),
    "groups of texts in a collation, counted": (
        "SELECT shop, count(DISTINCT tags COLLATE UTF8_LCASE) AS n FROM {orders} GROUP BY shop", None),
    "a group of distinct rows": (
        "SELECT shop, count(*) AS n FROM (SELECT DISTINCT shop, tags FROM {orders}) GROUP BY shop", None),
    "a join of all pairs": (
        "SELECT o.shop, o.id AS o, v.id AS v FROM {orders} o JOIN {visits} v ON o.shop = v.shop", ("o", "v")),
    "a join in WHERE": ("SELECT o.shop, o.id AS o, v.id AS v FROM {orders} o, {visits} v"
                        " WHERE o.shop = v.shop AND o.at < v.at", ("o", "v")),
    "a full join by name": (
        "SELECT shop, o.id AS o, v.id AS v FROM {orders} o FULL JOIN {visits} v USING (shop)", ("o", "v")),
    "a full join of three": (
        "SELECT shop, o.id AS o, v.id AS v, l.order_id, l.nr FROM {orders} o FULL JOIN {visits} v USING (shop)"
        " FULL JOIN {lines} l USING (shop)", ("o", "v", "order_id", "nr")),
    "groups of a full join": (
        "SELECT coalesce(o.shop, v.shop) AS shop, count(o.id) AS o, count(v.id) AS v FROM {orders} o"
        " FULL JOIN {visits} v ON v.shop = o.shop GROUP BY coalesce(o.shop, v.shop)", None),
    "groups of no null": (
        "SELECT shop, o.n, v.n AS m FROM (SELECT shop, count(*) AS n FROM {orders} WHERE shop IS NOT NULL GROUP BY"
        " shop) o FULL JOIN (SELECT shop, count(*) AS n FROM {visits} WHERE shop > 0 GROUP BY shop) v USING (shop)",
        None,
    ),
    "a right join": ("SELECT v.shop, o.id AS o, v.id AS v FROM {orders} o RIGHT JOIN {visits} v ON o.shop = v.shop",
                     ("o", "v")),
    "a semi join": ("SELECT o.shop, o.id FROM {orders} o LEFT SEMI JOIN {visits} v ON o.shop = v.shop AND o.at > v.at",
                    "id"),
    "an anti join": ("SELECT o.shop, o.id FROM {orders} o LEFT ANTI JOIN {visits} v ON o.shop = v.shop", "id"),
    "a join with itself": ("SELECT a.shop, a.id, b.id AS other FROM {orders} a JOIN {orders} b ON a.shop = b.shop"
                           " AND a.id < b.id", ("id", "other")),
    "a join with a group": (f"SELECT o.shop, o.id, g.n FROM {{orders}} o JOIN ({GROUPS}) g ON o.shop = g.shop"
                            " AND o.amount = g.amount", "id"),
    "NOT IN, of its partition": (
        "SELECT shop, id FROM {orders} o WHERE at NOT IN (SELECT at FROM {visits} v WHERE v.shop = o.shop)", "id"),
    "NOT IN, or another condition": (
        "SELECT shop, id FROM {orders} o WHERE NOT at IN (SELECT at FROM {visits} v WHERE v.shop = o.shop) OR id > 3",
        "id"),
    "IN as a value of what is never null": (
        "SELECT shop, id, id IN (SELECT id FROM {visits} v WHERE v.shop = o.shop) AS x FROM {orders} o", "id"),
    "columns of the values of another": (
        "SELECT * FROM (SELECT shop, tags, amount FROM {orders}) PIVOT (sum(amount) FOR tags IN ('a', 'b'))", None),
    "IN, by its partition": ("SELECT shop, id FROM {orders} WHERE (shop, at) IN (SELECT shop, at FROM {visits})", "id"),
    "a scalar subquery": (
        "SELECT shop, id, (SELECT max(v.at) FROM {visits} v WHERE v.shop = o.shop) AS last FROM {orders} o", "id"),
    "LATERAL": ("SELECT o.shop, o.id, l.last FROM {orders} o, LATERAL (SELECT max(v.at) AS last FROM {visits} v"
                " WHERE v.shop = o.shop) l", "id"),
    "a positioned explode": ("SELECT shop, id, pos, tag FROM {orders} LATERAL VIEW posexplode(split(tags, ',')) AS"
                             " pos, tag", ("id", "pos")),
    "distinct exploded values": (
        "SELECT shop, id, moment FROM {visits} LATERAL VIEW explode(sequence(at, day)) d AS moment", ("id", "moment")),
    "a union, looked at when it runs": ("SELECT shop, id FROM {orders} UNION ALL SELECT shop, id FROM {visits}", "id"),
    "one part of a union": (f"{NUMBERED} {EITHER} WHERE other IS NULL", "id"),
    "the other part of it": (
        f"SELECT shop, other.i AS id, row_number() OVER (PARTITION BY shop ORDER BY other) AS n FROM {EITHER}"
        " WHERE other IS NOT NULL", "n"),
    "the greatest of one part of a union": (
        f"SELECT shop, id, greatest FROM (SELECT *, max_by(other, other) OVER (PARTITION BY shop) AS greatest"
        f" FROM {EITHER}) WHERE other IS NULL", "id"),
    "a value of the greatest of one part": (
        f"SELECT shop, id, greatest FROM (SELECT *, max_by(id, other) OVER (PARTITION BY shop) AS greatest"
        f" FROM {EITHER}) WHERE other IS NULL", "id"),
    "parts of a union, each with nulls in the key of the other": (
        "SELECT shop, o, v, row_number() OVER (PARTITION BY shop ORDER BY o, v) AS n FROM (SELECT shop, id AS o,"
        " CAST(NULL AS BIGINT) AS v FROM {orders} UNION ALL SELECT shop, NULL, id FROM {visits})", "n"),
    "a join by what follows from the other side": (
        "SELECT o.shop, o.id, v.id AS v FROM {orders} o JOIN (SELECT shop, id, moment FROM {visits} LATERAL VIEW"
        " explode(sequence(at, day)) d AS moment) v ON o.shop = v.shop AND o.at = v.moment", ("id", "v")),
    "the same, where it may lack": (
        "SELECT o.shop, o.id, v.id AS v FROM {orders} o LEFT JOIN (SELECT shop, id, moment FROM {visits} LATERAL VIEW"
        " explode(sequence(at, day)) d AS moment) v ON o.shop = v.shop AND o.at = v.moment", ("id", "v")),
    "the greatest of each tag": (
        "SELECT shop, tags, max_by(size, amount) AS size FROM (SELECT shop, tags, amount, max(size + 0D) AS size FROM"
        " {orders} GROUP BY shop, tags, amount) GROUP BY shop, tags", "tags"),
    "a union without duplicates": ("SELECT shop, id FROM {orders} UNION SELECT shop, id FROM {visits}", "id"),
    "rows that the other lacks": ("SELECT shop, at FROM {orders} EXCEPT SELECT shop, at FROM {visits}", "at"),
    "a name for a part": (f"WITH g AS ({GROUPS}) SELECT shop, amount, n FROM g WHERE n > 1", "amount"),
    "a constant table": (
        "SELECT o.shop, o.id, o.amount * f.factor AS more FROM {orders} o CROSS JOIN (SELECT max(x) AS factor FROM"
        " VALUES (2) f (x)) f", "id"),
}  # fmt: skip


@each_row("case", WITHIN)
def test_a_view_may_look_at_the_rows_of_one_partition(small, case):
    text, key = WITHIN[case]
    assert "shop" in planned(small, text, key=key)


OUTSIDE = {
    "a window of all": ("SELECT shop, id, row_number() OVER (ORDER BY id) AS n FROM {orders}", "id",
                        "a window over rows of several partitions"),
    "a window by another column": ("SELECT shop, id, max(at) OVER (PARTITION BY tags) AS n FROM {orders}", "id",
                                   "a window over rows of several partitions"),
    "a row number of equal rows": (
        "SELECT shop, id, row_number() OVER (PARTITION BY shop ORDER BY amount) AS n FROM {orders}", "id",
        "row_number over rows of which two may be equal"),
    "both parts of a union": (f"{NUMBERED} {EITHER}", "id", "row_number over rows of which two may be equal"),
    "one part of a union, exploded": (
        f"{NUMBERED} {EITHER} LATERAL VIEW explode(array(1, 1)) e AS one WHERE other IS NULL", "id",
        "row_number over rows of which two may be equal"),
    "one part of a union of parts alike": (
        f"{NUMBERED} (SELECT shop, id, NULL AS other FROM {{orders}} UNION ALL SELECT shop, id, NULL FROM {{visits}})"
        " WHERE other IS NULL", "id", "row_number over rows of which two may be equal"),
    "a value of the greatest of both parts": (
        f"SELECT shop, id, max_by(other, id % 2) OVER (PARTITION BY shop) AS greatest FROM {EITHER}", "id",
        "max_by, which depends"),
    "neighbours of equal rows": (
        "SELECT shop, id, lag(id) OVER (PARTITION BY shop ORDER BY at) AS n FROM {orders}", "id", "lag over rows"),
    "a sum of rows of equal times": (
        "SELECT shop, id, sum(amount) OVER (PARTITION BY shop ORDER BY at ROWS 2 PRECEDING) AS n FROM {orders}", "id",
        "sum over rows of which two may be equal"),
    "the last of equal times": (
        "SELECT shop, id, last(id) OVER (PARTITION BY shop ORDER BY at) AS n FROM {orders}", "id", "last, which"),
    "a sum of floats in no order": (
        "SELECT shop, id, sum(size) OVER (PARTITION BY shop) AS n FROM {orders}", "id", "floating-point"),
    "an order by half a key": (
        "SELECT shop, order_id, nr, row_number() OVER (PARTITION BY shop ORDER BY order_id) AS n FROM {lines}",
        ("order_id", "nr"), "row_number over rows"),
    "a limit": ("SELECT shop, id FROM {orders} ORDER BY id LIMIT 3", "id", "a limit"),
    "an aggregate of all": ("SELECT 1 AS shop, count(*) AS n FROM {orders}", None, "an aggregate by nothing"),
    "an aggregate by another column": ("SELECT max(shop) AS shop, amount FROM {orders} GROUP BY amount", "amount",
                                       "an aggregate by"),
    "a rollup": ("SELECT shop, amount, count(*) AS n FROM {orders} GROUP BY ROLLUP (shop, amount)", "amount",
                 "rows repeated for each of several groupings"),
    "windows of Spark that overlap": (
        "SELECT shop, window.start AS s, count(*) AS n FROM {orders} GROUP BY shop, window(timestamp_micros(at),"
        " '1 day', '1 hour')", "s", "windows that overlap"),
    "groups of the side that may be missing": (
        "SELECT v.shop, count(*) AS n FROM {orders} o LEFT JOIN {visits} v ON o.shop = v.shop GROUP BY v.shop", None,
        "an aggregate by"),
    "the partition of the side that may be missing": (
        "SELECT v.shop, o.id, v.id AS v FROM {orders} o LEFT JOIN {visits} v ON o.shop = v.shop", ("id", "v"),
        "another value for 'shop'"),
    "half of a full join": (
        "SELECT o.shop, o.id AS o, v.id AS v FROM {orders} o FULL JOIN {visits} v ON v.shop = o.shop", ("o", "v"),
        "another value for 'shop'"),
    "a join by another column": (
        "SELECT o.shop, o.id AS o, v.id AS v FROM {orders} o JOIN {visits} v ON o.at = v.at", ("o", "v"),
        "a join of rows of several partitions"),
    "a cross join": ("SELECT o.shop, o.id AS o, v.id AS v FROM {orders} o CROSS JOIN {visits} v", ("o", "v"),
                     "a join of rows of several partitions: no condition"),
    "a partition that is computed": ("SELECT shop + 1 AS shop, id FROM {orders}", "id", "another value for 'shop'"),
    "groups by what is computed": (
        "SELECT shop, n FROM (SELECT shop + 1 AS shop, count(*) AS n FROM {orders} GROUP BY shop + 1)", None,
        "an aggregate by"),
    "EXISTS anywhere": ("SELECT shop, id FROM {orders} WHERE EXISTS (SELECT 1 FROM {visits} v WHERE v.at = 1)", "id",
                        "EXISTS over rows of several partitions"),
    "EXISTS under the condition of an outer join": (
        "SELECT shop, id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {visits} v LEFT JOIN {lines} l"
        " ON l.shop = v.shop AND l.shop = o.shop AND v.shop = o.shop)", "id", "EXISTS over rows of several partitions"),
    "EXISTS under the condition of an anti join": (
        "SELECT shop, id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {visits} v LEFT ANTI JOIN {lines} l"
        " ON l.shop = v.shop AND v.shop = o.shop)", "id", "EXISTS over rows of several partitions"),
    "EXISTS under the condition of one part of a union": (
        "SELECT shop, id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {visits} v WHERE v.shop = o.shop"
        " UNION ALL SELECT 1 FROM {lines})", "id", "EXISTS over rows of several partitions"),
    "groups of texts in a collation": (
        "SELECT shop, max(CAST(t AS string)) AS t FROM (SELECT shop, tags COLLATE UTF8_LCASE AS t FROM {orders}"
        " GROUP BY shop, tags COLLATE UTF8_LCASE) GROUP BY shop", None, "texts that are equal in a collation"),
    "distinct texts in a collation": (
        "SELECT shop, max(CAST(t AS string)) AS t FROM (SELECT DISTINCT shop, tags COLLATE UTF8_LCASE AS t"
        " FROM {orders}) GROUP BY shop", None, "texts that are equal in a collation"),
    "distinct numbers, of which zero is two": (
        "SELECT shop, max(CAST(s AS string)) AS s FROM (SELECT DISTINCT shop, size AS s FROM {orders}) GROUP BY shop",
        None, "0.0 and -0.0"),
    "IN as a value": (
        "SELECT shop, id, at IN (SELECT at FROM {visits} v WHERE v.shop = o.shop) AS x FROM {orders} o", "id",
        "IN as a value, which is null where o.at is null, and false in Spark"),
    "NOT IN of all": ("SELECT shop, id FROM {orders} WHERE shop NOT IN (SELECT shop FROM {visits})", "id",
                      "NOT IN over rows"),
    "a scalar subquery of all": ("SELECT shop, id, (SELECT max(at) FROM {visits}) AS n FROM {orders}", "id",
                                 "an aggregate by nothing"),
    "groups that null does not join": (
        "SELECT coalesce(o.shop, v.shop) AS shop, o.n, v.n AS m FROM (SELECT shop, count(*) AS n FROM {orders}"
        " GROUP BY shop) o FULL JOIN (SELECT shop, count(*) AS n FROM {visits} GROUP BY shop) v ON o.shop = v.shop",
        None,
        "several rows of one group",
    ),
    "a join by what does not follow from the side that is kept": (
        "SELECT v.shop, o.id, v.id AS v FROM {orders} o RIGHT JOIN (SELECT shop, id, moment FROM {visits} LATERAL VIEW"
        " explode(sequence(at, day)) d AS moment) v ON o.shop = v.shop AND o.at = v.moment", ("id", "v"),
        "may not tell apart"),
    "a union of which a part repeats its key": (
        "SELECT shop, id FROM {orders} UNION ALL SELECT o.shop, o.id FROM {orders} o JOIN {visits} v"
        " ON o.shop = v.shop", "id", "may not tell apart: a union"),
    "several rows of a group": ("SELECT shop, id FROM {orders}", None, "several rows of one group"),
    "two rows of a group": ("SELECT shop, amount, count(*) AS n FROM {orders} GROUP BY shop, amount", None,
                            "several rows of one group"),
    "a union of groups": ("SELECT shop, count(*) AS n FROM {orders} GROUP BY shop UNION ALL"
                          " SELECT shop, count(*) AS n FROM {visits} GROUP BY shop", None,
                          "several rows of one group: a union"),
    "pairs by two columns of one side": (
        "SELECT o.shop, o.id FROM {orders} o JOIN {visits} v ON o.shop = v.shop AND v.id = v.at", "id",
        "may not tell apart"),
    "pairs under one id": ("SELECT o.shop, o.id FROM {orders} o JOIN {visits} v ON o.shop = v.shop", "id",
                           "may not tell apart"),
    "exploded rows": ("SELECT shop, id FROM {orders} LATERAL VIEW explode(split(tags, ',')) t AS tag", "id",
                      "may not tell apart: explode"),
    "half a key": ("SELECT shop, order_id FROM {lines}", "order_id", "may not tell apart"),
    "rows that no table has, kept": (
        "SELECT o.shop, o.id, f.x FROM (VALUES (1)) f (x) LEFT JOIN {orders} o ON o.amount = f.x", ("id", "x"),
        "keeps rows of no partition"),
    "distinct values of all": ("SELECT DISTINCT at AS shop FROM {orders}", None, "rows without duplicates by"),
}  # fmt: skip


@each_row("case", OUTSIDE)
def test_a_view_that_looks_outside_its_partition_or_at_a_chance_order_is_refused(small, case):
    text, key, words = OUTSIDE[case]
    with pytest.raises(InvalidDefinition) as caught:
        planned(small, text, key=key)
    assert words in caught.value.message
    assert caught.value.remedy


@each_row("of_one_row", [True, False])
@each_row("keyed", [{"by": "shop", "key": "id"}, {"key": "id"}], ids=["by partitions", "by references"])
def test_rows_with_the_schema_of_a_parameter_are_not_taken_for_those_of_its_table(small, keyed, of_one_row):
    def more(visits):
        rows = [(1, 2, 3, 4)] if of_one_row else []
        return visits.union(visits.sparkSession.createDataFrame(rows, visits.schema))

    declared = view(tables={"visits": visits}, **keyed)(more)
    with pytest.raises(InvalidDefinition, match="rows made with the schema of its parameter 'visits'"):
        view_columns(small, ProjectionGroup("copies", [declared]))


# ---- what a view's function may not do


PEOPLE = sa.Table(
    "people", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text),
    sa.Column("born", sa.DateTime),
)  # fmt: skip
people = Table.from_changelog(PEOPLE, topic="people")
STAFF = sa.Table(
    "staff", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("boss", sa.Integer)
)  # fmt: skip
staff = Table.from_changelog(STAFF, topic="staff")


def planned_alone(small, function, *, by=None):
    """The columns of a view of people, or of groups of them."""

    @view(key=None if by else "id", by=by, tables={"people": people})
    def chosen(people):
        return function(people)

    return view_columns(small, ProjectionGroup("people", [chosen]))["chosen"]


def refused(small, function, *, by=None):
    with pytest.raises(InvalidDefinition) as caught:
        planned_alone(small, function, by=by)
    assert caught.value.place == "view chosen"
    assert caught.value.remedy
    return caught.value.message


@each_row(
    "sql",
    [
        "now()", "current_timestamp()", "current_date()", "curdate()", "localtimestamp()", "current_time()",
        "unix_timestamp()", "current_timezone()", "current_user()", "current_database()", "cast('now' AS timestamp)",
        "datediff(current_date(), born)",
    ],
)  # fmt: skip
def test_a_value_of_the_moment_is_refused(small, sql):
    assert "the time of day" in refused(small, lambda people: people.selectExpr("id", f"{sql} AS x"))


@each_row(
    "sql",
    [
        "rand()", "randn()", "rand(7)", "uuid()", "randstr(3)", "uniform(1, 9)", "shuffle(array(1, 2))",
        "monotonically_increasing_id()", "spark_partition_id()", "input_file_name()",
        "java_method('java.time.Instant', 'now')",
    ],
)  # fmt: skip
def test_a_value_that_is_another_each_time_is_refused_by_its_name(small, sql):
    told = refused(small, lambda people: people.selectExpr("id", f"{sql} AS x"))
    assert "a random value" in told
    assert sql.partition("(")[0] in told.lower()


def test_such_a_value_is_found_wherever_it_stands(small):
    luck = F.udf(lambda text: text, "string").asNondeterministic()
    for function in (
        lambda people: people.select("id", luck("name").alias("x")),
        lambda people: people.where("rand() > 0.5"),
        lambda people: people.where("id IN (SELECT id FROM range(3) WHERE rand() > 0.5)"),
    ):
        assert "a random value" in refused(small, function)


@each_row("by", [None, "id"])
def test_a_key_that_is_cast_is_refused(small, by):
    """Rows that a batch retracts are found by the key as the table has it."""

    def cast(people):
        rows = people.groupBy("id").agg(F.count("*").alias("n")) if by else people
        return rows.withColumn("id", F.col("id").cast("string"))

    assert "returns its key 'id' as string, and its table as bigint" in refused(small, cast, by=by)
    narrowed = planned_alone(small, lambda people: people.select(F.col("id").cast("int").alias("id")))
    assert narrowed["id"].ddl == "int"


def test_an_operator_that_looks_at_other_rows_is_found_in_a_subquery_too(small):
    assert "rows of no table" in refused(small, lambda people: people.where("id = (SELECT max(id) FROM range(3))"))
    assert "an offset" in refused(small, lambda people: people.offset(1), by="born")
    assert "id" in planned_alone(small, lambda people: people.offset(1))  # in the order of the key


def test_a_session_of_single_rows_is_refused(small):
    start = F.session_window("born", "1 hour")["start"]
    assert "session_window for single rows" in refused(small, lambda people: people.select("id", start.alias("start")))
    started = refused(small, lambda people: people.groupBy("born", start.alias("start")).count(), by="born")
    assert "session_window for single rows" in started
    whole = F.session_window("born", "1 hour")
    merged = planned_alone(small, lambda people: people.groupBy("name", whole).agg(F.count("*").alias("n"))
                     .groupBy("name").agg(F.max("session_window.start").alias("last")), by="name")  # fmt: skip
    assert "last" in merged


def test_of_rows_alike_in_some_columns_none_is_kept_by_chance(small):
    told = refused(small, lambda people: people.select("born", "name").dropDuplicates(["born"]), by="born")
    assert "dropDuplicates" in told
    assert "born" in planned_alone(small, lambda people: people.select("born").dropDuplicates(["born"]), by="born")


def test_names_that_sound_like_it_and_python_that_keeps_its_word_are_accepted(small):
    def function(people):
        same = F.udf(lambda text: text, "string")
        named = people.withColumnRenamed("name", "Window now() rand()")
        return named.select("id", same("Window now() rand()").alias("name"), F.date_trunc("day", "born").alias("born"))

    assert set(planned_alone(small, function)) == {"id", "name", "born"}


def test_a_map_whose_keys_are_no_texts_is_refused(small):
    with pytest.raises(InvalidDefinition, match=r"^map<bigint,string> has no text") as caught:
        planned_alone(small, lambda people: people.select("id", F.array(F.create_map("id", "name")).alias("names")))
    assert caught.value.place == "chosen.names"
