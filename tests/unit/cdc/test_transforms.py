"""Transforms as objects, and as Connect reads them."""

from __future__ import annotations

import pytest

from cdc.errors import InvalidConnector, LiteralSecret
from cdc.transforms import (
    Custom,
    EventRouter,
    Filter,
    Flatten,
    HasHeader,
    InsertField,
    InsertHeader,
    IsTombstone,
    Mask,
    RouteByRegex,
    TopicMatches,
    Transform,
    compiled,
)

PREDICATES = "org.apache.kafka.connect.transforms.predicates"


def settings(transform: Transform) -> dict[str, str]:
    """What one transform compiles to, without the list of names and without its own name."""
    return {key.removeprefix("transforms.it."): value for key, value in compiled((transform,)).items()}


def test_no_transforms_leave_no_trace() -> None:
    assert compiled(()) == {}


def test_transforms_keep_their_order_and_are_named_after_kind_and_place() -> None:
    config = compiled((RouteByRegex(pattern="a", replacement="b"), Flatten(), InsertField(field="x", value="1")))

    assert config["transforms"] == "routebyregex1,flatten2,insertfield3"
    assert "predicates" not in config


def test_a_predicate_is_named_after_the_transform_that_asks_it() -> None:
    config = compiled((Filter(name="quiet", when=TopicMatches(pattern=r"a\..*")),))

    assert config["transforms.quiet.type"] == "org.apache.kafka.connect.transforms.Filter"
    assert config["transforms.quiet.predicate"] == config["predicates"] == "quiet"
    assert config["transforms.quiet.negate"] == "false"
    assert config["predicates.quiet.type"] == f"{PREDICATES}.TopicNameMatches"
    assert config["predicates.quiet.pattern"] == r"a\..*"


def test_a_predicate_can_be_turned_around() -> None:
    assert compiled((Filter(name="it", when=IsTombstone(), negate=True),))["transforms.it.negate"] == "true"


def test_a_header_is_asked_for_by_its_name() -> None:
    config = compiled((Filter(name="it", when=HasHeader(header="h")),))

    assert config["predicates.it.type"] == f"{PREDICATES}.HasHeaderKey"
    assert config["predicates.it.name"] == "h"


def test_a_filter_of_everything_is_refused() -> None:
    with pytest.raises(InvalidConnector, match="drops every record"):
        Filter()


def test_masks_let_tombstones_through() -> None:
    config = compiled((Mask(name="it", fields=("email", "phone"), replacement="***"),))

    assert config["transforms.it.fields"] == "email,phone"
    assert config["transforms.it.replacement"] == "***"
    assert config["predicates.it.type"] == f"{PREDICATES}.RecordIsTombstone"
    assert config["transforms.it.negate"] == "true"


def test_an_empty_replacement_is_the_type_s_own_nothing() -> None:
    assert "replacement" not in settings(Mask(name="it", fields=("email",)))


def test_flattening_says_what_a_delete_leaves_and_what_is_kept() -> None:
    flat = settings(Flatten(name="it", deletes="rewrite", fields=("op", "source.lsn")))

    assert flat["delete.tombstone.handling.mode"] == "rewrite"
    assert flat["add.fields"] == "op,source.lsn"
    assert "add.headers" not in flat


def test_an_outbox_has_debezium_s_columns_unless_told() -> None:
    routed = settings(EventRouter(name="it", placements=("tenant:header:tenant",)))

    assert routed["table.field.event.key"] == "aggregateid"
    assert routed["route.topic.replacement"] == "outbox.event.${routedByValue}"
    assert routed["table.fields.additional.placement"] == "tenant:header:tenant"
    assert routed["table.fields.additional.error.on.missing"] == "true"
    assert "table.fields.additional.placement" not in settings(EventRouter(name="it"))


@pytest.mark.parametrize(("value", "literal"), [("1.0", "1.0000000001"), ("application/avro", "application/avro")])
def test_a_header_s_text_comes_out_as_it_was_given(value: str, literal: str) -> None:
    assert settings(InsertHeader(name="it", header="h", value=value))["value.literal"] == literal


def test_any_other_transform_goes_by_its_class() -> None:
    cast = settings(Custom(name="it", class_name="com.example.Cast$Value", options={"spec": "a:int8"}))

    assert cast["type"] == "com.example.Cast$Value"
    assert cast["spec"] == "a:int8"


def test_a_literal_secret_of_a_transform_is_refused() -> None:
    with pytest.raises(LiteralSecret) as refused:
        Custom(class_name="com.example.Seal", options={"api.key": "sentinel"})

    assert "sentinel" not in str(refused.value)


@pytest.mark.parametrize("names", [("twice", "twice"), ("a.b",), ("a,b",), ("1st",)])
def test_names_that_connect_could_not_tell_apart_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidConnector, match="transform name"):
        compiled([Flatten(name=name) for name in names])
