"""What values fields and further settings take, and where a refusal says it is."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.connectors.base import setting
from cdc.errors import InvalidConnector
from eventstore.errors import FactfoldError, InvalidIdentifier
from tests.unit.cdc.declared import postgres as source


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"name": "a/b"}, "name"),
        ({"topic_prefix": "a b"}, "topic_prefix"),
        ({"tables": ("customers",)}, "tables"),
        ({"tables": ("public.a b",)}, "tables"),
        ({"tables": ()}, "tables"),
        ({"publication": "a b"}, "publication"),
        ({"slot": "A"}, "slot"),
        ({"history": ("public.orders",)}, "history"),
        ({"signal_table": "signals"}, "signal_table"),
        ({"notifications_topic": "a b"}, "notifications_topic"),
        ({"port": 0}, "port"),
    ],
)
def test_what_is_refused_has_its_field_as_its_place(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(FactfoldError) as refused:
        source(**changes)

    assert refused.value.place == place


def test_a_topic_may_be_as_long_as_kafka_s() -> None:
    assert source(notifications_topic="x" * 249).notifications_topic == "x" * 249
    with pytest.raises(InvalidIdentifier):
        source(notifications_topic="x" * 250)


@pytest.mark.parametrize("port", [0, -1, 65536, "x", "5432", True, None])
def test_a_port_is_a_number_of_sixteen_bits(port: Any) -> None:
    with pytest.raises(InvalidConnector, match="no valid port"):
        source(port=port)
    assert source(port=65535).config()["database.port"] == "65535"


# key, a value of its type, one that is none
TYPED = [
    ("max.batch.size", "100", "many"),
    ("max.batch.size", 2**31 - 1, 2**31),
    ("max.batch.size", -1, ""),
    ("max.batch.size", " 5 ", "5.0"),
    ("poll.interval.ms", 2**31, 2**63),
    ("tombstones.on.delete", True, "yes"),
    ("tombstones.on.delete", "False", 1),
    ("tasks.max", 2, True),
    ("max.batch.size", "${file:/a:b}", "${file:/a:b} 1"),
]


@pytest.mark.parametrize(("key", "right", "wrong"), TYPED)
def test_a_value_has_the_type_that_its_list_says(key: str, right: Any, wrong: Any) -> None:
    assert key in source(extra={key: right}).config()
    with pytest.raises(InvalidConnector, match="a value that is no") as refused:
        source(extra={key: wrong})
    assert refused.value.place == key
    assert source(unchecked={key: wrong}).config()[key] == setting(wrong)


def test_a_value_of_another_type_is_not_repeated_in_the_error() -> None:
    with pytest.raises(InvalidConnector) as refused:
        source(extra={"max.batch.size": "sentinel"})
    assert "sentinel" not in str(refused.value)


def test_a_key_that_stands_for_many_has_a_list_of_columns_as_its_value() -> None:
    assert source(extra={"column.truncate.to.20.chars": "public.items.name"}).config()


@pytest.mark.parametrize("field", ["extra", "unchecked"])
@pytest.mark.parametrize("value", [None, ["a"], {"a": 1}, b"x"])
def test_a_value_that_is_no_text_number_or_boolean_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidConnector, match="neither text, number nor boolean") as refused:
        source(**{field: {"max.batch.size": value}})
    assert refused.value.place == "max.batch.size"
