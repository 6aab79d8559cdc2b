"""Views in SQL give what Spark gives for the text as it was written, over tables of the same names."""

from __future__ import annotations

import itertools
import random
import re

import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, sql_view
from projections.declaring.sql_views import Query, SqlFunction
from projections.errors import InvalidDefinition
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from tests.captured import captured
from tests.rows import each_row

orders = captured("orders", "customer_id", "amount", at=sa.DateTime)
customers = captured("customers", "boss_id", "name")
TABLES = {"orders": orders, "customers": customers}
ROWS = {
    "orders": "SELECT id, id % 3 AS customer_id, id * 2 AS amount, timestamp_seconds(id * 40000) AS at FROM range(6)",
    "customers": "SELECT id, id - 1 AS boss_id, CAST(id AS STRING) AS name FROM range(3)",
}


@pytest.fixture(scope="module")
def own(spark):
    """A session of its own, in which the tables have their names."""
    session = small_batch_session(spark)
    session.conf.set("spark.sql.timeType.enabled", "true")
    for name, rows in ROWS.items():
        session.sql(rows).createOrReplaceTempView(name)
    yield session
    for name in ROWS:
        session.catalog.dropTempView(name)


def ours(session, text, tables=TABLES):
    """The result of the view's function, whose references are not looked at."""
    query = Query("some", text, tables)
    of = {role: next(name for name in tables if tables[name] is table) for role, table in query.roles.items()}
    return SqlFunction(query)(*(session.table(of[role]) for role in query.roles))


def are_same(found, expected):
    """Whether two queries have one plan, or else the same rows."""
    return found.sameSemantics(expected) or sorted(found.collect(), key=str) == sorted(expected.collect(), key=str)


def examples(session):
    """Every example query of Spark's documentation of functions, except those that need what is not here."""
    infos = session._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos()
    for info in infos:
        for example in ("\n" + (info.getExamples() or "")).split("\n      > ")[1:]:
            query = example.partition(";\n")[0]
            if query.upper().startswith("SELECT") and not any(word in query for word in NOT_HERE):
                yield query


NOT_HERE = ("avro(", "protobuf(", "test_metric_view", "python_worker_logs", "raise_error(")  # jars, tables and settings
ANOTHER_EACH_TIME = ("rand()", "randn()", "random()", "uuid()", "shuffle(")


def in_one(queries, *, table="orders"):
    """One text with many queries, for Spark takes longer over a text than over a query in it."""
    numbered = "\nUNION ALL\n".join(f"SELECT {n} AS n FROM (\n{query}\n)" for n, query in enumerate(queries))
    return f"SELECT orders.id, x.n FROM {table} CROSS JOIN (\n{numbered}\n) AS x"


def test_every_example_of_sparks_functions_is_the_query_that_was_written(own):
    found = sorted(set(examples(own)))
    # After a word of a type, such as struct, Spark takes the first > for the type's end.
    shifts, others = ([query for query in found if (">>" in query) is shift] for shift in (True, False))
    assert len(others) > 1000
    for queries in (shifts, *(others[start : start + 150] for start in range(0, len(others), 150))):
        text = in_one(queries)
        query = Query("some", text, TABLES)
        assert query.over({"orders": "other"}) == in_one(queries, table="`other` AS `orders`")
        same = [query for query in queries if not any(word in query for word in ANOTHER_EACH_TIME)]
        assert ours(own, in_one(same)).sameSemantics(own.sql(in_one(same)))


FUNCTIONS = {
    "a quote in a text": "'O''Brien'",
    "a format of numbers": "to_char(amount, '0999')",
    "a list without a delimiter": "(SELECT listagg(c.name) WITHIN GROUP (ORDER BY c.id) FROM customers c)",
    "another name of it": "(SELECT string_agg(c.name) WITHIN GROUP (ORDER BY c.id) FROM customers c)",
    "the greatest two": "(SELECT max_by(c.name, c.id, 2) FROM customers c)",
    "the least two": "(SELECT min_by(c.name, c.id, 2) FROM customers c)",
    "an exact percentile": "(SELECT percentile_cont(0.3) WITHIN GROUP (ORDER BY c.id) FROM customers c)",
    "one that is there": "(SELECT percentile_disc(0.4) WITHIN GROUP (ORDER BY c.id) FROM customers c)",
    "JSON": "schema_of_variant(parse_json('{\"a\": [1]}'))",
    "a path of JSON": 'parse_json(\'{"a": {"b": 7}}\'):a.b::int',
    "a time": "TIME'12:34:56'",
    "a window of time": "window(at, '1 day')",
    "a shift": "amount >>> 1",
    "bytes": "X '1F'",
}


@each_row("what", FUNCTIONS)
def test_a_function_has_the_arguments_that_were_written(own, what):
    text = f"SELECT id, {FUNCTIONS[what]} AS x FROM orders"
    assert ours(own, text).sameSemantics(own.sql(text))


SCOPES = {
    "the table's name in WITH": "WITH orders AS (SELECT * FROM orders WHERE amount > 5) SELECT id, amount FROM orders",
    "a name of WITH in another case": "WITH R AS (SELECT id FROM orders WHERE id > 2) SELECT `r`.id FROM r",
    "WITH in WITH": (
        "WITH r AS (WITH orders AS (SELECT * FROM orders WHERE id > 1) SELECT * FROM orders),"
        " s AS (SELECT * FROM orders o WHERE id < 5) SELECT r.id FROM r JOIN s USING (id)"
    ),
    "an inner WITH of the name of an outer one": (
        "WITH r AS (SELECT id FROM orders) SELECT id FROM r WHERE id IN (WITH r AS (SELECT id FROM customers)"
        " SELECT id FROM r WHERE id > 0)"
    ),
    "WITH of another table's name": (
        "SELECT id FROM orders WHERE id IN (WITH orders AS (SELECT id FROM customers) SELECT id FROM orders)"
        " OR id IN (SELECT o.id FROM orders o WHERE o.id > 4)"
    ),
    "a later WITH": (
        "WITH customers AS (SELECT * FROM orders WHERE id > 1), orders AS (SELECT * FROM customers WHERE id < 4)"
        " SELECT id FROM orders"
    ),
    "WITH before the name is another one": (
        "WITH a AS (SELECT id FROM customers), customers AS (SELECT * FROM orders WHERE id > 0)"
        " SELECT customers.id FROM customers JOIN a USING (id)"
    ),
    "WITH of a union": (
        "SELECT id FROM (WITH c AS (SELECT id FROM customers) SELECT id FROM orders UNION ALL SELECT id + 10 FROM c)"
    ),
    "numbers of a recursive WITH": (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT id, i FROM orders, n"
    ),
    "names in texts, comments and hints": (
        "select /*+ BROADCAST(customers) */ orders.id, 'FROM orders' AS a, \"orders\" AS b, r'\\' AS c"
        " -- FROM customers\n , ' FROM orders' AS d /* FROM orders /* , */ */ From Orders join customers using (id)"
        " ;\n;"
    ),
    "qualified columns of a table in another case": (
        "SELECT Orders.id, orders.*, CUSTOMERS.name FROM ORDERS LEFT JOIN `customers`"
        " ON customers.id = orders.customer_id"
    ),
    "a table function, VALUES and a lateral view": (
        "SELECT orders.id, customers.a, range.id AS b, x FROM orders, range(2) AS range,"
        " VALUES (1), (2) AS customers(a) LATERAL VIEW explode(array(1, 2)) e AS x"
    ),
    "a lateral subquery": "SELECT o.id, c.name FROM orders o, LATERAL (SELECT * FROM customers WHERE id = o.id) c",
    "a pivot": "SELECT * FROM (SELECT id, customer_id c, amount FROM orders) PIVOT (sum(amount) FOR c IN (1, 2))",
    "an unpivot": "SELECT id, n, v FROM customers UNPIVOT (v FOR n IN (boss_id)) AS orders",
    "joins in parentheses": "SELECT o.id, name FROM (orders o JOIN customers ON o.customer_id = customers.id)",
    "subqueries in SELECT, WHERE and HAVING": (
        "SELECT customer_id, max((SELECT max(c.name) FROM customers c WHERE c.id = customer_id)) AS name, count(*) AS n"
        " FROM orders WHERE EXISTS (SELECT 1 FROM customers d WHERE d.id = orders.customer_id) GROUP BY customer_id"
        " HAVING count(*) > (SELECT min(e.id) FROM customers e)"
    ),
    "FROM before SELECT": "FROM orders SELECT id, '\U0001f600' AS x",
    "a pipe": "FROM orders |> WHERE amount > 5 |> SELECT id",
    "a table's name before a pivot with an alias": (
        "SELECT p.* FROM customers PIVOT (count(1) FOR boss_id IN (0, 1)) AS p WHERE p.id > 0"
    ),
}


@each_row("what", SCOPES)
def test_a_text_reads_the_tables_that_spark_reads(own, what):
    found, expected = ours(own, SCOPES[what]), own.sql(SCOPES[what])
    assert found.columns == expected.columns
    assert are_same(found, expected)


@each_row(
    ("text", "read"),
    [
        ("SELECT id FROM orders, explode(TABLE(customers))", "customers"),
        ("SELECT id FROM orders -- and \\\n, customers", "fewer tables"),
    ],
)
def test_a_text_in_which_spark_reads_other_tables_is_refused(own, text, read):
    with pytest.raises(InvalidDefinition, match=f"Spark reads {read}"):
        ours(own, text)


@each_row(
    ("text", "cause"),
    [
        ("SELECT id, nothing(at) AS x FROM orders", "Cannot resolve routine `nothing`"),
        ("SELECT id, substring(name) AS x FROM customers", "requires [2, 3] parameters"),
        ("SELECT id, name FROM orders JOIN customers ON customer_id = customers.id", "Reference `id` is ambiguous"),
    ],
)
def test_a_query_that_spark_cannot_analyse_is_a_definition_to_correct(own, text, cause):
    read = {name: table for name, table in TABLES.items() if name in text}
    group = ProjectionGroup("wrong", [sql_view("wrong", text, tables=read, key="id")])
    with pytest.raises(InvalidDefinition, match=re.escape(cause)) as refused:
        view_columns(own, group)
    assert refused.value.remedy == "correct its query"


class Written:
    """Random queries over two tables, in which WITH gives their names and another one to queries, at any depth."""

    def __init__(self, seed):
        self._chosen, self._aliases = random.Random(seed), itertools.count()

    def query(self, depth, names):
        text, given = "", []
        if depth and self._chosen.random() < 0.5:
            given = self._chosen.sample(["orders", "customers", "r"], self._chosen.choice([1, 2]))
            text = "WITH " + ", ".join(f"{name} AS ({self.query(depth - 1, names)})" for name in given) + " "
        text += self._select(depth, [*names, *given])
        return text if self._chosen.random() < 0.8 else f"{text} UNION ALL {self._select(0, [*names, *given])}"

    def _select(self, depth, names):
        source, alias = self._source(depth, names)
        text = f"SELECT {alias}.id + 1 AS id FROM {source}"
        if depth and self._chosen.random() < 0.3:
            other, its = self._source(depth - 1, names)
            text += f" LEFT JOIN {other} ON {alias}.id = {its}.id"
        if depth and self._chosen.random() < 0.4:
            text += f" WHERE {alias}.id IN ({self.query(depth - 1, names)})"
        return text

    def _source(self, depth, names):
        alias = f"t{next(self._aliases)}"
        if depth and self._chosen.random() < 0.3:
            return f"({self.query(depth - 1, names)}) {alias}", alias
        name = self._chosen.choice(names)
        return f"{self._chosen.choice([name, name.upper(), f'`{name}`'])} {alias}", alias


def test_random_scopes_are_sparks(own):
    written, same, refused = Written(2), 0, []
    while same < 12:
        text = f"SELECT id FROM ({written.query(3, ['orders', 'customers'])})"
        try:
            found = ours(own, text)
        except InvalidDefinition as error:
            refused.append(error.message)
            continue
        assert are_same(found, own.sql(text)), text
        same += 1
    assert all("more than once, through" in message for message in refused)
