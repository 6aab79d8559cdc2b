"""What values fields and further settings take, one or several, and where a refusal says it is."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import cdc
from cdc import transforms
from cdc.connectors.base import setting
from cdc.errors import InvalidConnector
from cdc.transforms import Filter, Flatten, RecordPredicate, Transform
from eventstore.errors import InvalidIdentifier
from tests.rows import each_row
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
        ({"tables": ('public.x"; DROP TABLE customers; --',)}, "tables"),
        ({"tables": ("public.a,public.b",)}, "tables"),
        ({"publication": "p'; --"}, "publication"),
        ({"topic_prefix": "x" * 64}, "topic_prefix"),
        ({"partitions": 0}, "partitions"),
        ({"heartbeat_interval_ms": 0}, "heartbeat_interval_ms"),
        ({"epoch": -1}, "epoch"),
    ],
)
def test_what_is_refused_has_its_field_as_its_place(changes: dict[str, Any], place: str) -> None:
    with pytest.raises((InvalidConnector, InvalidIdentifier)) as refused:
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


DECLARATIONS = [
    *(value for value in vars(transforms).values() if inspect.isclass(value) and issubclass(value, Transform)),
    *(getattr(cdc, name) for name in cdc.__all__ if name.endswith("Source") or name.startswith("Mirror")),
]
SEVERAL = [
    (declaration, field.name)
    for declaration in DECLARATIONS
    if dataclasses.is_dataclass(declaration)
    for field in dataclasses.fields(declaration)
    if str(field.type).startswith("tuple[")
]


def required(declaration: Any) -> dict[str, Any]:
    """A value for each field without a default: texts, and tuples of one text."""
    missing = dataclasses.MISSING
    fields = [f for f in dataclasses.fields(declaration) if f.default is missing and f.default_factory is missing]
    texts = {f.name: "shop" if f.name == "databases" else "shop.customers" for f in fields}
    return {f.name: (texts[f.name],) if str(f.type).startswith("tuple[") else "shop" for f in fields}


@each_row(("declaration", "field"), SEVERAL)
def test_one_text_is_refused_with_the_tuple_to_write(declaration: Any, field: str) -> None:
    secrets = (
        {"allow_literal_secrets": True} if "allow_literal_secrets" in inspect.signature(declaration).parameters else {}
    )
    with pytest.raises(InvalidConnector) as refused:
        declaration(**(required(declaration) | {field: "public.customers"} | secrets))
    assert f"{field}=('public.customers',)" in (refused.value.remedy or "")


def test_all_declarations_are_looked_at() -> None:
    names = {f"{declaration.__name__}.{field}" for declaration, field in SEVERAL}
    assert {"Flatten.fields", "Mask.fields", "PostgresSource.tables", "MirrorCheckpoint.groups"} <= names
    assert {"PostgresSource.transforms", "OutboxSource.transforms", "MirrorSource.topics"} <= names


def test_one_transform_is_refused_and_so_are_those_of_no_kind() -> None:
    shop = {"name": "shop", "host": "db", "database": "shop", "user": "u", "password": "${file:/run/secrets/s:p}"}
    with pytest.raises(InvalidConnector, match="takes several values"):
        cdc.PostgresSource(**shop, topic_prefix="shop", tables=("public.a",), transforms=Flatten())  # type: ignore[arg-type]
    for bare in (Transform, RecordPredicate):
        with pytest.raises(InvalidConnector, match="of no kind"):
            bare()
    with pytest.raises(InvalidConnector, match="drops every record"):
        Filter()
