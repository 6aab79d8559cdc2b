"""Views written in SQL: what the text says of tables, keys and foreign keys, and what is refused with what to write."""

from __future__ import annotations

import pytest

from projections.declaring.sql_views import sql_view
from projections.declaring.views import Reference, Unmatched
from projections.errors import InvalidDefinition
from tests.conformance.join_views import GROUP, NAMED, SQL

FUNCTIONS = {
    view.name: view
    for view in GROUP.all_views
    if all(name in NAMED for name in view.tables) and "FROM (" not in SQL[view.name]
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_text_says_what_the_function_was_declared_with(name):
    declared = FUNCTIONS[name]
    written = sql_view(name, SQL[name], tables=NAMED, roots=declared.roots if declared.peers else ())
    assert (written.key, written.unmatched, written.grouped) == (declared.key, declared.unmatched, declared.grouped)
    assert written.peers == declared.peers


def test_a_table_that_stands_twice_in_a_query_has_the_names_of_its_aliases():
    of_the_same_table = sql_view(
        "of_the_same_table",
        "SELECT e.id FROM employees e LEFT JOIN employees b ON e.boss_id = b.id",
        tables=NAMED,
    )
    assert of_the_same_table.tables == {"e": NAMED["employees"], "b": NAMED["employees"]}


def test_the_plan_says_the_references_and_not_the_text():
    text = "SELECT o.id FROM orders o LEFT JOIN customers c ON c.id = o.customer_id"
    with pytest.raises(InvalidDefinition, match="not known before Spark has planned it") as caught:
        _ = sql_view("some", text, tables=NAMED).references
    assert "declare references={…}" in caught.value.remedy


def test_references_are_no_part_of_the_fingerprint_for_the_text_implies_them():
    text = "SELECT o.id FROM orders o LEFT JOIN customers c ON c.id = o.customer_id"
    declared = sql_view("some", text, tables=NAMED, references={"customer_id": "customers"})
    assert declared.references == (Reference("orders", ("customer_id",), "customers"),)
    assert declared.signature() == sql_view("some", text, tables=NAMED).signature()


def test_references_may_be_given_where_the_text_does_not_show_them():
    text = "SELECT o.id FROM (SELECT * FROM orders WHERE amount > 5) o FULL JOIN customers c ON o.customer_id = c.id"
    with pytest.raises(InvalidDefinition, match="reaches table 'customers'"):
        sql_view("some", text, tables=NAMED, references={}, unmatched={})
    given = sql_view(
        "some", text, tables=NAMED, references={"customer_id": "customers"}, unmatched={"customer": "customers"}
    )
    assert given.unmatched == (Unmatched(("customer",), "customers"),)


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


def test_the_key_of_the_first_table_may_be_named():
    text = "SELECT o.id, c.full_name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id"
    named, unnamed = (sql_view("some", text, tables=NAMED, **given) for given in ({"key": "id"}, {}))
    assert named.key == unnamed.key == ("id",)
    assert named.signature() == unnamed.signature()


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("SELECT id, amount FROM orders", "amount", "names the key amount, and has the key of its first table, id"),
        ("SELECT id, count(*) AS n FROM orders GROUP BY id", "id", "has the key of its groups"),
    ],
)
def test_another_key_is_refused(text, key, message):
    with pytest.raises(InvalidDefinition, match=message) as caught:
        sql_view("some", text, tables=NAMED, key=key)
    assert "leave key out" in caught.value.remedy


def test_roots_of_a_query_that_groups_are_refused_and_not_passed_over():
    with pytest.raises(InvalidDefinition, match="names columns of partitions, and references"):
        sql_view("some", "SELECT id, count(*) AS n FROM orders GROUP BY id", tables=NAMED, roots=("orders",))
