"""Views written in SQL: what the text says of tables, and what is refused with what to write."""

from __future__ import annotations

import pytest

from projections.declaring.sql_views import sql_view
from projections.errors import InvalidDefinition
from tests.conformance.join_views import NAMED


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
