"""What a group may say of the transactions of its sources, and when a rebuild would take something back."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, Table, view
from projections.errors import InvalidDefinition, ProjectionError
from projections.spark.reading.whole_log import require_served
from tests.errors import raises

ITEMS = sa.Table("items", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), schema="public")


def items_rows(items: Any) -> Any:
    return items


def european_rows(european: Any) -> Any:
    return european


def group(items: str = "shop.public.items", **options: Any) -> ProjectionGroup:
    """A view of this topic, and one of a source whose prefix is longer by a dot."""
    tables = {"items": Table.from_changelog(ITEMS, topic=items, **options)}
    european = {"european": Table.from_changelog(ITEMS, topic="shop.eu.public.items")}
    views = [view(key="id", tables=tables)(items_rows), view(key="id", tables=european)(european_rows)]
    return ProjectionGroup("items", views, transactions=("shop",))


def test_a_prefix_takes_no_topic_of_a_prefix_that_begins_with_it() -> None:
    made = group()
    assert made.captured_by("shop") == ("shop.public.items",)
    assert made.captured_by("shop.eu") == ("shop.eu.public.items",)
    assert made.captured_by("sho") == ()
    with pytest.raises(InvalidDefinition, match="reads no topic of that prefix"):
        group("other.public.items")


def test_transactions_of_a_source_in_avro_are_refused_when_declared() -> None:
    with pytest.raises(InvalidDefinition, match=r"shop\.public\.items is Avro"):
        group(encoding="avro")
    assert group(encoding="json-with-schemas").transactions == ("shop",)


def test_a_rebuild_that_would_end_before_what_is_served_is_refused() -> None:
    ends = {"shop.public.items": {0: 1_010, 1: 7}}
    served = {"shop.public.items": {0: 1_010, 1: 5}}
    with raises(ProjectionError, code="end-not-known", match=r"serves 1010 offsets.* only up to 10") as refused:
        require_served(served, {"shop.public.items": {0: 10, 1: 5}}, ends, group="items")
    assert refused.value.place == "topic shop.public.items, partition 0"
    require_served(served, served, ends, group="items")
    require_served({}, {"shop.public.items": {0: 0, 1: 0}}, ends, group="items")


def test_a_topic_that_was_made_anew_is_rebuilt_though_it_ends_before() -> None:
    served, anew = {"shop.public.items": {0: 1_010}}, {"shop.public.items": {0: 12}}
    require_served(served, {"shop.public.items": {0: 10}}, anew, group="items")
