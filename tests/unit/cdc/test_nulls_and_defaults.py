"""A NULL in a nullable column that has a DEFAULT stays a NULL, or the declaration is refused."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.connectors.encodings import ApicurioAvro, Encoding, JsonWithSchemas, PlainJson
from cdc.errors import UnsupportedEncoding
from cdc.findings import Finding, Severity
from cdc.identifiers import TableName
from cdc.operating.planning import unread
from cdc.source.catalogue import TableFacts
from cdc.source.source_health import of_table
from cdc.transforms import Custom, Flatten, InsertField, Mask, Transform, compiled
from tests.rows import each_row
from tests.unit.cdc.declared import CHANGELOGS, outbox, postgres

JSON = "org.apache.kafka.connect.json.JsonConverter"
CONFLUENT = "io.confluent.connect.avro.AvroConverter"
KAFKA = "org.apache.kafka.connect.transforms"
AVRO = ApicurioAvro(registry_url="http://registry:8080/apis/registry/v3")
IN_JSON: list[Encoding] = [PlainJson(), JsonWithSchemas()]
ITEMS = TableName.parse("public.items")


@each_row("encoding", IN_JSON, ids=["plain", "with schemas"])
@each_row("declare", CHANGELOGS)
def test_json_is_written_without_defaults_in_the_place_of_nulls(declare: Any, encoding: Encoding) -> None:
    config = declare(encoding=encoding).config()

    for part in ("key", "value"):
        assert config[f"{part}.converter.replace.null.with.default"] == "false"


@each_row("part", ["key", "value"])
@each_row("encoding", IN_JSON, ids=["plain", "with schemas"])
@each_row("declare", CHANGELOGS)
def test_a_setting_that_turns_defaults_on_again_is_refused(declare: Any, encoding: Encoding, part: str) -> None:
    key = f"{part}.converter.replace.null.with.default"

    with pytest.raises(UnsupportedEncoding, match="would arrive as the default") as refused:
        declare(encoding=encoding, extra={key: "TRUE"})

    assert (refused.value.place, refused.value.remedy) == (key, f"set {key}=false")
    assert declare(encoding=encoding, unchecked={key: "true"}).config()[key] == "true"


@pytest.mark.parametrize(
    ("converter", "setting", "keeps"),
    [(JSON, "replace.null.with.default", "false"), (CONFLUENT, "ignore.default.for.nullables", "true")],
)
def test_a_converter_named_by_its_class_must_be_told_to_keep_nulls(converter: str, setting: str, keeps: str) -> None:
    named = {f"{part}.converter": converter for part in ("key", "value")}
    kept = {f"{part}.converter.{setting}": keeps for part in ("key", "value")}

    with pytest.raises(UnsupportedEncoding) as refused:
        postgres(encoding=AVRO, extra=named)

    assert refused.value.remedy == f"set key.converter.{setting}={keeps}"
    assert postgres(encoding=AVRO, extra={**named, **kept}).config()["value.converter"] == converter


def custom(class_name: str, **options: str) -> Custom:
    return Custom(name="it", class_name=class_name, options={key.replace("_", "."): v for key, v in options.items()})


@each_row(
    ("transform", "says"),
    [
        *((transform, "false") for transform in (
            Flatten(name="it"), Mask(name="it", fields=("email",)), InsertField(name="it", field="a", value="b"),
            custom(f"{KAFKA}.Cast$Value", spec="a:int8"), custom(f"{KAFKA}.TimestampConverter$Value"),
            custom("io.debezium.transforms.ExtractNewRecordState"))),
        # A transform without the setting is not given it, and its own words are left as they are.
        *((custom(name), None) for name in ("com.example.Seal", f"{KAFKA}.Flatten$Value", f"{KAFKA}.HoistField$Value")),
        (custom(f"{KAFKA}.Cast$Value", replace_null_with_default="true"), "true"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_transform_keeps_nulls_where_it_can(transform: Transform, says: str | None) -> None:
    assert compiled((transform,)).get("transforms.it.replace.null.with.default") == says


def findings(connector: Any, *defaulted: str) -> list[Finding]:
    facts = TableFacts("r", True, "d", ("id",), (), True, True, False, (), (), (), (), defaulted)
    return [found for found in of_table(facts, ITEMS, connector, None) if found.severity is Severity.ERROR]


def test_avro_is_refused_for_a_table_with_a_nullable_column_that_has_a_default() -> None:
    (found,) = findings(postgres(encoding=AVRO), "seen", "note")

    assert "a NULL in seen, note of public.items would arrive as the column's DEFAULT" in found.result
    assert "PlainJson() or JsonWithSchemas()" in found.remedy
    assert 'ALTER TABLE "public"."items" ALTER "seen" DROP DEFAULT' in found.remedy


def test_a_default_is_no_matter_where_nulls_stay_or_no_column_has_one() -> None:
    kept = {f"{part}.converter.ignore.default.for.nullables": "true" for part in ("key", "value")}
    confluent = {**{f"{part}.converter": CONFLUENT for part in ("key", "value")}, **kept}

    for connector in (postgres(), postgres(encoding=JsonWithSchemas()), postgres(extra=confluent), outbox()):
        assert findings(connector, "seen") == []
    assert findings(postgres(encoding=AVRO)) == []


def test_what_was_passed_unchecked_is_refused_where_a_table_shows_the_harm() -> None:
    (found,) = findings(postgres(unchecked={"value.converter.replace.null.with.default": "true"}), "seen")

    assert "seen of public.items" in found.result


def test_a_plan_says_that_rows_of_a_running_connector_must_be_read_again() -> None:
    running = {key: value for key, value in postgres().config().items() if "replace.null" not in key}

    for before in (running, postgres(encoding=AVRO).config()):
        (note,) = unread(before, postgres().config())
        assert "has arrived as the default until now" in note
        assert "factfold cdc compare … --repair" in note
        assert "factfold cdc snapshot take …" in note


@pytest.mark.parametrize(
    ("running", "declared"), [(PlainJson(), JsonWithSchemas()), (PlainJson(), AVRO), (AVRO, AVRO)], ids=str
)
def test_no_row_must_be_read_again_where_nothing_is_mended(running: Encoding, declared: Encoding) -> None:
    assert unread(postgres(encoding=running).config(), postgres(encoding=declared).config()) == ()
    assert unread(outbox().config(), outbox().config()) == ()
