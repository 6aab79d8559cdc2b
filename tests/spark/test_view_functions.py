"""What a view's function may not do: told when the view is planned, whatever Spark calls it."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import ProjectionGroup, Table, view
from projections.errors import InvalidDefinition
from projections.spark.views.view_functions import view_columns
from tests.rows import each_row

PEOPLE = sa.Table(
    "people", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text),
    sa.Column("born", sa.DateTime),
)  # fmt: skip
people = Table.from_changelog(PEOPLE, topic="people")
STAFF = sa.Table(
    "staff", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("boss", sa.Integer)
)  # fmt: skip
staff = Table.from_changelog(STAFF, topic="staff")


def planned(small, function, *, by=None):
    """The columns of a view of people, or of groups of them."""

    @view(key=None if by else "id", by=by, tables={"people": people})
    def chosen(people):
        return function(people)

    return view_columns(small, ProjectionGroup("people", [chosen]))["chosen"]


def refused(small, function, *, by=None):
    with pytest.raises(InvalidDefinition) as caught:
        planned(small, function, by=by)
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
    narrowed = planned(small, lambda people: people.select(F.col("id").cast("int").alias("id")))
    assert narrowed["id"].ddl == "int"


def test_an_operator_that_looks_at_other_rows_is_found_in_a_subquery_too(small):
    assert "an aggregate" in refused(small, lambda people: people.where("id = (SELECT max(id) FROM range(3))"))
    assert "an offset" in refused(small, lambda people: people.offset(1), by="born")
    assert "id" in planned(small, lambda people: people.offset(1))  # in the order of the key


def test_a_session_of_single_rows_is_refused(small):
    start = F.session_window("born", "1 hour")["start"]
    assert "session_window for single rows" in refused(small, lambda people: people.select("id", start.alias("start")))
    started = refused(small, lambda people: people.groupBy("born", start.alias("start")).count(), by="born")
    assert "session_window for single rows" in started
    whole = F.session_window("born", "1 hour")
    merged = planned(small, lambda people: people.groupBy("name", whole).agg(F.count("*").alias("n"))
                     .groupBy("name").agg(F.max("session_window.start").alias("last")), by="name")  # fmt: skip
    assert "last" in merged


def test_of_rows_alike_in_some_columns_none_is_kept_by_chance(small):
    told = refused(small, lambda people: people.select("born", "name").dropDuplicates(["born"]), by="born")
    assert "dropDuplicates" in told
    assert "born" in planned(small, lambda people: people.select("born").dropDuplicates(["born"]), by="born")


def test_names_that_sound_like_it_and_python_that_keeps_its_word_are_accepted(small):
    def function(people):
        same = F.udf(lambda text: text, "string")
        named = people.withColumnRenamed("name", "Window now() rand()")
        return named.select("id", same("Window now() rand()").alias("name"), F.date_trunc("day", "born").alias("born"))

    assert set(planned(small, function)) == {"id", "name", "born"}


def test_a_map_whose_keys_are_no_texts_is_refused(small):
    with pytest.raises(InvalidDefinition, match=r"^map<bigint,string> has no text") as caught:
        planned(small, lambda people: people.select("id", F.array(F.create_map("id", "name")).alias("names")))
    assert caught.value.place == "chosen.names"
