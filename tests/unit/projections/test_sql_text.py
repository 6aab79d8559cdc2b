"""Texts of queries, their fingerprints, and how definitions are shown."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, Table, field, sql_view, view
from projections.declaring.sql_views import Query
from projections.errors import InvalidDefinition
from sample_app import views
from sample_app.payments import branching
from tests.conformance.join_views import NAMED
from tests.rows import each_row

# What stands in ‹› is a table's name; it is replaced, and called as it was where the text gives it no alias.
TEXTS = {
    "literals, formats, and arguments that sqlglot changes": (
        "SELECT id, 'O''Brien', to_char(amount, '999'), listagg(a), max_by(a, b, 2), percentile_cont(0.5) WITHIN GROUP"
        " (ORDER BY a), parse_json('1'), TIME'12:00:00', window(at, '1 day') FROM ‹orders› o"
    ),
    "a comment behind the end": "SELECT id FROM ‹orders›; -- end",
    "a text that is no moment": "SELECT id, DATE'2024-01-01', TIMESTAMP'epoch', CAST('now' AS string) FROM ‹orders›",
    "spaces, comments, hints and the case of words": (
        "select /*+ BROADCAST(orders) */ id -- FROM orders\n , 1 /* FROM orders /* orders */ */\tFrom\r\n ‹orders› O"
        " ;\n;"
    ),
    "texts that hold the names of tables": "SELECT 'FROM orders', \"orders\", r'orders\\', `orders` FROM ‹orders›",
    "qualified columns": "SELECT orders.id, orders.*, `orders`.amount FROM ‹orders› WHERE orders.id > 1",
    "quoted names": "SELECT id FROM ‹`orders`› JOIN ‹`customers`› AS `c` USING (id)",
    "names in another case": "SELECT ORDERS.id FROM ‹Orders›",
    "characters beyond the basic plane": "SELECT '\U0001f600', 'é' AS `\U0001f600` FROM ‹orders› o",
    "a table function, rows of VALUES, a lateral view": (
        "SELECT orders.id FROM ‹orders›, range(3) AS range, VALUES (1), (2) AS customers(id)"
        " LATERAL VIEW explode(array(1)) employees AS x"
    ),
    "subqueries everywhere": (
        "SELECT (SELECT max(c.id) FROM ‹customers› c WHERE c.id = customer_id) AS c FROM ‹orders›"
        " WHERE id IN (SELECT e.id FROM ‹employees› e) AND EXISTS (SELECT 1 FROM ‹regions›)"
        " HAVING max(id) > (SELECT min(p.id) FROM ‹planets› p)"
    ),
    "set operations": "SELECT id FROM (SELECT id FROM ‹orders› UNION ALL (SELECT id FROM ‹customers› EXCEPT SELECT 1))",
    "a lateral subquery": "SELECT o.id FROM ‹orders› o, LATERAL (SELECT * FROM ‹customers› WHERE id = o.customer_id) c",
    "a pivot of a table, with an alias of each": (
        "SELECT * FROM ‹orders› PIVOT (sum(amount) FOR seller_id IN (1, 2)) AS p"
        " JOIN ‹customers› c UNPIVOT (v FOR n IN (full_name)) u"
    ),
    "joins in parentheses": "SELECT o.id FROM (‹orders› o JOIN ‹customers› ON customer_id = customers.id)",
    "FROM before SELECT": "FROM ‹orders› SELECT id",
    "a pipe": "FROM ‹orders› |> WHERE amount > 5 |> SELECT id",
    "operators that sqlglot does not know": "SELECT amount >>> 1, X 'FF', amount >> 2 FROM ‹orders›",
    "paths of a variant": "SELECT v:a.b[0]::int, parse_json('1'):c FROM ‹orders›, (SELECT parse_json('1') AS v) AS o",
    "the end of a nested type": "SELECT CAST(x AS array<array<array<int>>>) FROM ‹orders›",
    "a query of WITH of the table's name": "WITH orders AS (SELECT * FROM ‹orders› WHERE id > 5) SELECT id FROM orders",
    "a query of WITH in another case": "WITH R AS (SELECT * FROM ‹orders›) SELECT r.id FROM `r`",
    "a later query of WITH": (
        "WITH customers AS (SELECT * FROM ‹orders›), orders AS (SELECT * FROM customers) SELECT id FROM orders"
    ),
    "an earlier query of WITH": (
        "WITH a AS (SELECT c.id FROM ‹customers› c), customers AS (SELECT * FROM ‹orders›)"
        " SELECT customers.id FROM customers JOIN a USING (id)"
    ),
    "WITH in a subquery": (
        "SELECT id FROM ‹orders› WHERE id IN (WITH orders AS (SELECT id FROM ‹customers›) SELECT id FROM orders)"
        " AND id IN (SELECT id FROM ‹orders› o)"
    ),
    "WITH in WITH": (
        "WITH r AS (WITH orders AS (SELECT * FROM ‹orders› WHERE id > 1) SELECT * FROM orders), s AS (SELECT * FROM"
        " ‹orders› o) SELECT r.id FROM r JOIN s USING (id)"
    ),
    "WITH of a union": (
        "SELECT id FROM (WITH c AS (SELECT id FROM ‹customers›) SELECT id FROM ‹orders› UNION ALL SELECT id FROM c)"
    ),
    "an inner query of WITH before an outer one": (
        "WITH r AS (SELECT id FROM ‹orders›) SELECT id FROM r WHERE id IN (WITH r AS (SELECT id FROM ‹customers›)"
        " SELECT id FROM r)"
    ),
    "a recursive query of WITH": (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT id, i FROM ‹orders›, n"
    ),
}  # fmt: skip


def query(text):
    """The tables of a text."""
    return Query("some", text, NAMED)


def replaced(marked, name):
    """A text in which another name stands for each marked one."""
    before, *places = marked.split("‹")
    rest = [place.split("›") for place in places]
    return before + "".join(f"`{name}`{_alias(written, after)}{after}" for written, after in rest)


def _alias(written, after):
    following = after.split()[0] if after[:1].isspace() else ")"
    is_clause = following.upper() in {*"WHERE JOIN PIVOT SELECT ON |> UNION EXCEPT HAVING USING LATERAL".split()}
    has_none = is_clause or following[0] in "),;"
    return f" AS `{written.strip('`')}`" if has_none else ""


@each_row("marked", TEXTS.values(), ids=TEXTS)
def test_only_names_of_tables_are_replaced_in_the_text(marked):
    read = query(marked.replace("‹", "").replace("›", ""))
    assert read.over(dict.fromkeys(read.roles, "other")) == replaced(marked, "other")


REFUSED = {
    "a table of another schema": ("SELECT id FROM shop.orders", "reads shop.orders", "as in tables"),
    "a file": ("SELECT id FROM orders, parquet.`/data/orders`", "reads parquet./data/orders", "as in tables"),
    "a name of WITH where it is not seen": (
        "SELECT id FROM (WITH r AS (SELECT * FROM orders) SELECT * FROM r) WHERE id IN (SELECT id FROM r)", "reads r",
        "as in tables"),
    "a name of WITH in itself": ("WITH r AS (SELECT * FROM orders JOIN r) SELECT id FROM r", "reads r", "as in tables"),
    "a name of WITH before it": (
        "WITH q AS (SELECT * FROM r), r AS (SELECT * FROM orders) SELECT id FROM q", "reads r", "as in tables"),
    "a name of WITH in a schema": (
        "WITH r AS (SELECT * FROM orders) SELECT id FROM shop.r", "reads shop.r", "as in tables"),
    "a name that is computed": ("SELECT id FROM orders, IDENTIFIER('customers')", "reads IDENTIFIER", "as in tables"),
    "a sample": ("SELECT id FROM orders TABLESAMPLE (10 ROWS)", "reads 'orders' with sample", "in WHERE"),
    "a stream": ("SELECT id FROM orders, STREAM(customers)", "reads STREAM", "as in tables"),
    "an earlier version": ("SELECT id FROM orders VERSION AS OF 3", "reads 'orders' with version", "in WHERE"),
    "a parameter": ("SELECT id FROM orders WHERE amount > :least", "has the parameter :least", "the value itself"),
    "a parameter without a name": ("SELECT id FROM orders WHERE amount > ?", "has the parameter ?", "value itself"),
    "a setting": ("SELECT '${env:HOME}' AS home, id FROM orders", r"contains \$\{env:HOME\}", "concat"),
    "the day of the moment": ("SELECT DATE 'today' AS d, id FROM orders", "has the moment 'today'", "a column"),
    "the moment in a zone": (
        "SELECT id FROM orders WHERE at < timestamp_ltz' Tomorrow UTC'", "has the moment ' Tomorrow UTC'", "column"),
    "a setting in a comment": ("SELECT id /* ${x} */ FROM orders", r"contains \$\{x\}", "value itself"),
    "several statements": ("SELECT id FROM orders; DROP TABLE orders", "is 2 statements", "one SELECT"),
    "a text without an end": ("SELECT 'id FROM orders", "cannot be read", "one SELECT"),
    "too deep a nesting": (f"SELECT {'(' * 3000}id{')' * 3000} FROM orders", "nested too deeply", "several views"),
}  # fmt: skip


@each_row(("text", "message", "remedy"), REFUSED.values(), ids=REFUSED)
def test_a_text_that_cannot_be_answered_right_is_refused(text, message, remedy):
    with pytest.raises(InvalidDefinition, match=message) as caught:
        sql_view("some", text, tables=NAMED)
    assert remedy in caught.value.remedy
    assert caught.value.place == "view some"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("to_char(amount, '999')", "to_char(amount, '099')"),
        ("max_by(id, amount, 2)", "max_by(id, amount, 3)"),
        ("'O''Brien'", "'O' 'Brien'"),
        ("1L", "1 L"),
        ("r'\\n'", "'\\n'"),
    ],
)
def test_the_fingerprint_changes_with_everything_that_spark_reads(one, other):
    first, second = (sql_view("some", f"SELECT id, {x} FROM orders", tables=NAMED).signature() for x in (one, other))
    assert first != second


def test_the_fingerprint_does_not_change_with_comments():
    texts = "SELECT id FROM orders", "SELECT id -- the key\nFROM /* all */ orders"
    first, second = (sql_view("some", text, tables=NAMED).signature() for text in texts)
    assert first == second


# ---- views written in SQL


def test_the_plan_says_the_key_and_the_references():
    text = "SELECT o.id FROM orders o LEFT JOIN customers c ON c.id = o.customer_id"
    assert sql_view("some", text, tables=NAMED).key == ()
    with pytest.raises(InvalidDefinition, match="not known before Spark has planned it") as caught:
        _ = sql_view("some", text, tables=NAMED).references
    assert "a rebuild or a run of its group" in caught.value.remedy


def test_the_fingerprint_changes_with_the_text_and_not_with_its_spaces():
    def signature(text):
        return sql_view("some", text, tables=NAMED).signature()

    assert signature("SELECT id FROM orders") == signature("SELECT  id\nFROM orders")
    assert signature("SELECT id FROM orders") != signature("SELECT id, amount FROM orders")


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("SELECT FROM WHERE", "cannot be read", "one SELECT"),
        ("DROP TABLE orders", "is no SELECT", "one SELECT"),
        ("SELECT id FROM nowhere", "reads nowhere", "name its tables"),
        ("SELECT 1", "reads no table", "name its tables"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_up_to_date_is_refused_with_what_to_write(text, message, remedy):
    with pytest.raises(InvalidDefinition, match=message) as caught:
        sql_view("some", text, tables=NAMED)
    assert remedy in caught.value.remedy


# ---- definitions show themselves in one line, for notebooks, debuggers and failing assertions


def captured(count):
    columns = (sa.Column(f"column_{n}", sa.Text) for n in range(count))
    return sa.Table("wide", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), *columns)


wide = Table.from_changelog(captured(100), topic="shop.public.wide")


@view(key="id")
def shown(wide):
    return wide.select("id")


SHOWN = {
    "<ChangelogTable shop.public.wide: id, column_0, column_1, column_2, column_3, column_4, column_5, column_6"
    " and 93 more>": wide,
    "<VersionTable w: id, column_0>": Table.versions_of(captured(1), topic="w"),
    "<ViewTopicTable v: id, column_0>": Table.from_view_topic(captured(1), topic="v"),
    "<ChangelogTable w: id, column_0, of some rows>": Table.from_changelog(captured(1), topic="w").where(
        field("id") > 1
    ),
    "<View shown: key id, of wide>": shown,
    "<ProjectionGroup wide_group: shown>": ProjectionGroup("wide_group", [shown]),
}


@pytest.mark.parametrize(("line", "definition"), SHOWN.items(), ids=lambda one: type(one).__name__)
def test_a_definition_is_one_line(line, definition):
    assert repr(definition) == line


@pytest.mark.parametrize("module", [views, branching])
def test_definitions_of_the_sample_app_are_short(module):
    kinds = ("ProjectionGroup", "View", "EventTable", "ChangelogTable", "Branches", "Subscription")
    found = [value for value in vars(module).values() if type(value).__name__ in kinds]
    assert found
    for one in found:
        assert repr(one).startswith(f"<{type(one).__name__} ")
        assert len(repr(one)) < 200
        assert "\n" not in repr(one)
