"""Transforms of a connector compile to the settings of Kafka Connect."""

from __future__ import annotations

import pytest

from cdc.errors import InvalidConnector
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
from tests.rows import each_row

PREDICATES = "org.apache.kafka.connect.transforms.predicates"


def settings(transform: Transform) -> dict[str, str]:
    """What one transform compiles to, without the list of names and without its own name."""
    return {key.removeprefix("transforms.it."): value for key, value in compiled((transform,)).items()}


@each_row(
    ("transform", "says"),
    [
        (Filter(name="it", when=TopicMatches(pattern=r"a\..*")),
         {"type": "org.apache.kafka.connect.transforms.Filter", "predicate": "it", "predicates": "it",
          "negate": "false",
          "predicates.it.type": f"{PREDICATES}.TopicNameMatches", "predicates.it.pattern": r"a\..*"}),
        (Filter(name="it", when=IsTombstone(), negate=True), {"negate": "true"}),
        (Filter(name="it", when=HasHeader(header="h")),
         {"predicates.it.type": f"{PREDICATES}.HasHeaderKey", "predicates.it.name": "h"}),
        # Masks let tombstones through.
        (Mask(name="it", fields=("email", "phone"), replacement="***"),
         {"fields": "email,phone", "replacement": "***", "predicates.it.type": f"{PREDICATES}.RecordIsTombstone",
          "negate": "true"}),
        (Mask(name="it", fields=("email",)), {"replacement": None}),
        # What a delete leaves, and what a row tells of its change.
        (Flatten(name="it", deletes="rewrite", fields=("op", "source.lsn")),
         {"delete.tombstone.handling.mode": "rewrite", "add.fields": "op,source.lsn", "add.headers": None}),
        # An outbox has Debezium's columns unless told.
        (EventRouter(name="it", placements=("tenant:header:tenant",)),
         {"table.field.event.key": "aggregateid", "route.topic.replacement": "outbox.event.${routedByValue}",
          "table.fields.additional.placement": "tenant:header:tenant",
          "table.fields.additional.error.on.missing": "true"}),
        (EventRouter(name="it"), {"table.fields.additional.placement": None}),
        # The text of a header comes out as it was given.
        (InsertHeader(name="it", header="h", value="1.0"), {"value.literal": "1.0000000001"}),
        (InsertHeader(name="it", header="h", value="application/avro"), {"value.literal": "application/avro"}),
        (Custom(name="it", class_name="com.example.Cast$Value", options={"spec": "a:int8"}),
         {"type": "com.example.Cast$Value", "spec": "a:int8"}),
    ],
    ids=repr,
)  # fmt: skip
def test_a_transform_compiles_to_the_settings_of_its_class(transform: Transform, says: dict[str, str | None]) -> None:
    settings = {key.removeprefix("transforms.it."): value for key, value in compiled((transform,)).items()}
    assert {key: settings.get(key) for key in says} == says


def test_transforms_keep_their_order_and_are_named_after_kind_and_place() -> None:
    config = compiled((RouteByRegex(pattern="a", replacement="b"), Flatten(), InsertField(field="x", value="1")))
    assert config["transforms"] == "routebyregex1,flatten2,insertfield3"
    assert "predicates" not in config
    assert compiled(()) == {}


@pytest.mark.parametrize("names", [("twice", "twice"), ("a.b",), ("a,b",), ("1st",)])
def test_names_that_connect_could_not_tell_apart_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidConnector, match="transform name"):
        compiled([Flatten(name=name) for name in names])
