"""A query that groups joined rows, or groups by what it computes, is made of two views: its rows and their groups."""

from __future__ import annotations

import pytest

from projections import ProjectionGroup, view
from projections.declaring.sql_grouping import parted
from projections.declaring.sql_queries import Query
from projections.declaring.sql_text import parsed
from projections.declaring.sql_views import sql_view
from projections.declaring.views import Unmatched
from projections.errors import InvalidDefinition
from tests.conformance.join_views import NAMED


def halves(text, tables=NAMED):
    two = parted(Query("some", parsed("some", text), tables), "some_rows")
    return (two.rows.strip(), two.groups) if two else None


TWO = {
    "a join and a grouping": (
        "SELECT c.region_id, sum(o.amount) AS total FROM orders o JOIN customers c ON o.customer_id = c.id"
        " WHERE o.amount > 0 GROUP BY c.region_id",
        "SELECT `o`.`id` AS `id`, c.region_id AS `region_id`, `o`.`amount` AS `amount` FROM orders o JOIN customers c"
        " ON o.customer_id = c.id WHERE o.amount > 0",
        "SELECT `region_id`, sum(`amount`) AS `total` FROM some_rows GROUP BY `region_id`"),
    "an expression": (
        "SELECT amount % 2 AS odd, count(*) AS n FROM orders GROUP BY amount % 2",
        "SELECT `orders`.`id` AS `id`, amount % 2 AS `odd` FROM orders",
        "SELECT `odd`, count(*) AS `n` FROM some_rows GROUP BY `odd`"),
    "an expression in other letters, with its table and in parentheses": (
        "SELECT Amount % 2 AS odd, count(*) AS n FROM Orders O GROUP BY (o.AMOUNT % 2)",
        "SELECT `o`.`id` AS `id`, Amount % 2 AS `odd` FROM Orders O",
        "SELECT `odd`, count(*) AS `n` FROM some_rows GROUP BY `odd`"),
    "an order, which a view has not": (
        "SELECT amount % 2 AS odd, count(*) AS n FROM orders GROUP BY odd HAVING n > 1 ORDER BY n DESC, max(seller_id)",
        "SELECT `orders`.`id` AS `id`, amount % 2 AS `odd` FROM orders",
        "SELECT `odd`, count(*) AS `n` FROM some_rows GROUP BY `odd` HAVING n > 1"),
    "an alias, with HAVING over results and columns": (
        "SELECT amount % 2 odd, count(*) n FROM orders GROUP BY odd HAVING n > 1 AND max(seller_id) < 9 OR odd = 1;",
        "SELECT `orders`.`id` AS `id`, amount % 2 AS `odd`, `orders`.`seller_id` AS `seller_id` FROM orders",
        "SELECT `odd`, count(*) AS `n` FROM some_rows GROUP BY `odd` HAVING n > 1 AND max(`seller_id`) < 9 OR odd = 1"),
    "a place": (
        "SELECT count(*) AS n, amount + 1 AS more FROM orders GROUP BY 2",
        "SELECT `orders`.`id` AS `id`, amount + 1 AS `more` FROM orders",
        "SELECT count(*) AS `n`, `more` FROM some_rows GROUP BY `more`"),
    "a column under another name, and the key of the rows in an aggregate": (
        "SELECT customer_id AS c, max(id) AS last FROM orders GROUP BY customer_id",
        "SELECT `orders`.`id` AS `id`, customer_id AS `c` FROM orders",
        "SELECT `c`, max(`id`) AS `last` FROM some_rows GROUP BY `c`"),
    "a column called as a result": (
        "SELECT amount % 2 AS odd, sum(seller_id) AS seller_id FROM orders GROUP BY odd HAVING sum(seller_id) > 1",
        "SELECT `orders`.`id` AS `id`, amount % 2 AS `odd`, `orders`.`seller_id` AS `orders_seller_id` FROM orders",
        "SELECT `odd`, sum(`orders_seller_id`) AS `seller_id` FROM some_rows GROUP BY `odd`"
        " HAVING sum(`orders_seller_id`) > 1"),
    "an alias that is a column, too": (
        "SELECT upper(city_name) AS city_name, city_name AS c FROM orders GROUP BY city_name, 1",
        "SELECT `orders`.`id` AS `id`, city_name AS `c`, upper(city_name) AS `city_name` FROM orders",
        "SELECT `city_name`, `c` FROM some_rows GROUP BY `c`, `city_name`"),
    "an alias that is called as its table": (
        "SELECT c.full_name AS c, count(*) AS n FROM orders o JOIN customers c ON customer_id = c.id GROUP BY c",
        "SELECT `o`.`id` AS `id`, c.full_name AS `c` FROM orders o JOIN customers c ON customer_id = c.id",
        "SELECT `c`, count(*) AS `n` FROM some_rows GROUP BY `c`"),
    "two columns of one name": (
        "SELECT c.full_name AS n, max(o.id) AS o, max(c.id) AS c FROM orders o JOIN customers c ON customer_id = c.id"
        " GROUP BY n",
        "SELECT `o`.`id` AS `id`, c.full_name AS `n`, `c`.`id` AS `c_id` FROM orders o JOIN customers c ON customer_id"
        " = c.id",
        "SELECT `n`, max(`id`) AS `o`, max(`c_id`) AS `c` FROM some_rows GROUP BY `n`"),
    "rows of a subquery, of WITH": (
        "WITH x AS (SELECT * FROM orders) SELECT zip, sum(amount) AS t FROM x JOIN places USING (country_name,"
        " city_name) GROUP BY zip",
        "WITH x AS (SELECT * FROM orders) SELECT `x`.`id` AS `id`, zip AS `zip`, `amount` AS `amount` FROM"
        " x JOIN places USING (country_name, city_name)",
        "SELECT `zip`, sum(`amount`) AS `t` FROM some_rows GROUP BY `zip`"),
    "rows of a subquery without a name, in parentheses, with a comment": (
        "(SELECT id % 3 AS k, count(*) /* GROUP BY */ AS n FROM (SELECT * FROM orders) -- GROUP BY x\n GROUP BY k)",
        "SELECT `id` AS `id`, id % 3 AS `k` FROM (SELECT * FROM orders) -- GROUP BY x",
        "SELECT `k`, count(*) AS `n` FROM some_rows GROUP BY `k`"),
    "different values": (
        "SELECT DISTINCT c.region_id, upper(full_name) AS name FROM orders o LEFT JOIN customers c ON customer_id ="
        " c.id",
        "SELECT `o`.`id` AS `id`, c.region_id AS `region_id`, upper(full_name) AS `name` FROM orders o LEFT JOIN"
        " customers c ON customer_id = c.id",
        "SELECT DISTINCT `region_id`, `name` FROM some_rows"),
    "different values that are compared": (
        "SELECT DISTINCT amount IS DISTINCT FROM 3 AS other FROM orders",
        "SELECT `orders`.`id` AS `id`, amount IS DISTINCT FROM 3 AS `other` FROM orders",
        "SELECT DISTINCT `other` FROM some_rows"),
}  # fmt: skip


@pytest.mark.parametrize("what", TWO)
def test_a_query_becomes_its_rows_and_their_groups(what):
    text, rows, groups = TWO[what]
    assert halves(text) == (rows, groups)


ONE = {
    "SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id": ("customer_id",),
    "SELECT Customer_ID, count(*) AS n FROM orders o GROUP BY (o.CUSTOMER_ID)": ("customer_id",),
    "SELECT DISTINCT country_name, city_name FROM orders": ("country_name", "city_name"),
    "SELECT DISTINCT id, amount FROM orders": (),
    "SELECT DISTINCT o.id, c.full_name FROM orders o JOIN customers c ON o.customer_id = c.id": (),
    "SELECT id, amount FROM orders": (),
}


BY_CUSTOMER = [
    "SELECT customer_id, count(*) AS n FROM orders FULL JOIN visits USING (customer_id) GROUP BY customer_id",
    "SELECT o.customer_id, count(*) AS n FROM orders o JOIN visits v ON v.customer_id = o.customer_id AND o.id > 1"
    " GROUP BY o.customer_id",
    "SELECT DISTINCT customer_id FROM orders o WHERE EXISTS (SELECT 1 FROM visits v WHERE v.customer_id ="
    " o.customer_id)",
]


@pytest.mark.parametrize("text", BY_CUSTOMER)
def test_tables_that_are_joined_by_what_a_query_groups_by_are_partitions_of_one_view(text):
    assert halves(text) is None
    assert sql_view("some", text, tables=NAMED).by == ("customer_id",)


def test_tables_that_share_a_column_and_are_joined_by_another_are_rows_to_group():
    text = (
        "SELECT v.region_id, count(*) AS n FROM visits v JOIN customers c ON v.customer_id = c.id GROUP BY v.region_id"
    )
    rows, groups = halves(text)
    assert rows.startswith("SELECT `v`.`customer_id` AS `customer_id`, `v`.`region_id` AS `region_id` FROM visits v")
    assert groups == "SELECT `region_id`, count(*) AS `n` FROM some_rows GROUP BY `region_id`"


@pytest.mark.parametrize("text", ONE)
def test_a_query_of_a_table_s_columns_is_one_view(text):
    assert halves(text) is None
    declared = sql_view("some", text, tables=NAMED)
    assert declared.by == ONE[text]
    assert declared.key == (ONE[text] or ("id",))
    assert declared.inputs == ()


def test_both_views_are_part_of_a_group_and_of_its_fingerprint():
    def group(where):
        text = f"SELECT amount % 2 AS odd, count(*) AS n FROM orders WHERE amount > {where} GROUP BY odd"
        return ProjectionGroup("g", [sql_view("odds", text, tables=NAMED)])

    assert [view.name for view in group(1).all_views] == ["odds_rows", "odds"]
    assert list(group(1).tables) == ["orders"]
    assert group(1).fingerprint() != group(2).fingerprint()


def test_another_view_that_is_called_as_the_rows_is_refused():
    @view(key="id", tables=NAMED)
    def odds_rows(orders):
        return orders

    odds = sql_view("odds", "SELECT amount % 2 AS odd, count(*) AS n FROM orders GROUP BY odd", tables=NAMED)
    with pytest.raises(InvalidDefinition, match="two views 'odds_rows'"):
        _ = ProjectionGroup("g", [odds, odds_rows]).all_views


def test_the_rows_keep_the_sides_of_a_right_or_full_join():
    text = "SELECT c.full_name AS name, count(o.id) AS n FROM orders o FULL JOIN customers c ON o.customer_id = c.id"
    (rows,) = sql_view("some", f"{text} GROUP BY name", tables=NAMED).inputs
    assert rows.unmatched == (Unmatched(("c_id",), "customers"),)
    assert rows.key == ("id", "c_id")


def test_a_view_whose_columns_are_not_known_yet_is_grouped_by_an_expression():
    orders = sql_view("seen", "SELECT id, amount, at AS seen_at FROM orders", tables=NAMED)
    text = "SELECT date(seen_at) AS day, sum(amount) AS amount FROM seen GROUP BY day"
    assert halves(text, {"seen": orders}) == (
        "SELECT `seen`.`id` AS `id`, date(seen_at) AS `day`, `amount` AS `column_1` FROM seen",
        "SELECT `day`, sum(`column_1`) AS `amount` FROM some_rows GROUP BY `day`",
    )


def test_sides_that_the_text_does_not_show_may_be_declared_to_be_none():
    text = (
        "SELECT c.x, count(*) AS n FROM orders o RIGHT JOIN (SELECT id AS k, full_name AS x FROM customers) c ON true"
    )
    with pytest.raises(InvalidDefinition, match="RIGHT JOIN of a subquery"):
        sql_view("some", f"{text} GROUP BY c.x", tables=NAMED)
    (rows,) = sql_view("some", f"{text} GROUP BY c.x", tables=NAMED, unmatched={}).inputs
    assert rows.unmatched == ()
    with pytest.raises(InvalidDefinition, match="unmatched sides"):
        sql_view("some", f"{text} GROUP BY c.x", tables=NAMED, unmatched={"k": "customers"})


def test_references_of_the_join_may_be_declared():
    text = "SELECT c.region_id, count(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY 1"
    (rows,) = sql_view("some", text, tables=NAMED, references={"customer_id": "customers"}).inputs
    assert [str(reference) for reference in rows.references] == ["orders.customer_id → customers"]


REFUSED = {
    "an expression that is not selected": (
        "SELECT max(id) AS id FROM orders GROUP BY customer_id % 2", "does not select it", "customer_id % 2 AS name"),
    "an expression without a name": (
        "SELECT amount + 1, count(*) AS n FROM orders GROUP BY amount + 1", "no name", "amount + 1 AS name"),
    "a different value without a name": ("SELECT DISTINCT amount % 2 FROM orders", "no name", "amount % 2 AS name"),
    "another column called as the key of the rows": (
        "SELECT c.id, count(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY c.id",
        "another 'id' to tell its rows apart", "c.id AS c_id"),
    "a result called as a column, in HAVING": (
        "SELECT id % 3 AS k, sum(amount) AS amount FROM orders GROUP BY k HAVING amount > 1", "a column and a result",
        "another name than amount"),
    "a limit": ("SELECT amount + 1 AS a FROM orders GROUP BY a LIMIT 3", "has LIMIT", "without more"),
    "a limit of the groups of one table": (
        "SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id LIMIT 3", "has LIMIT", "without more"),
    "the first groups of an order": (
        "SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id ORDER BY n LIMIT 3", "has LIMIT",
        "without more"),
    "a subquery beside the groups": (
        "SELECT amount + 1 AS a, (SELECT 1) AS n FROM orders GROUP BY a", "a subquery outside of", "another one"),
    "all columns": ("SELECT * FROM orders GROUP BY amount + 1", r"selects \*", "name the columns"),
    "all columns of a table": (
        "SELECT DISTINCT c.* FROM orders o JOIN customers c ON o.customer_id = c.id", r"selects \*", "the columns"),
    "FROM in front": ("FROM orders SELECT amount % 2 AS a, count(*) AS n GROUP BY a", "another order", "SELECT … FROM"),
    "different groups": (
        "SELECT DISTINCT amount, count(*) AS n FROM orders GROUP BY amount", "DISTINCT and GROUP BY", "leave DISTINCT"),
    "roots": (
        "SELECT amount % 2 AS k, count(*) AS n FROM orders FULL JOIN profiles USING (id) GROUP BY k",
        "rows of several roots", "in a view that this one reads"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_made_of_two_is_refused_with_what_to_write(what):
    text, message, remedy = REFUSED[what]
    with pytest.raises(InvalidDefinition, match=message) as caught:
        sql_view("some", text, tables=NAMED, roots=("orders", "profiles") if what == "roots" else ())
    assert remedy in caught.value.remedy
    assert caught.value.place == "view some"
