"""How a source says its records are written, and which ways of writing are refused."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.connectors.encodings import ApicurioAvro, Encoding, JsonWithSchemas, PlainJson
from cdc.errors import UnsupportedEncoding
from tests.rows import each_row
from tests.unit.cdc.declared import mongodb, mysql, postgres, sqlserver

JSON = "org.apache.kafka.connect.json.JsonConverter"
AVRO = ApicurioAvro(registry_url="http://registry:8080/apis/registry/v3")
WITH_SCHEMA: list[Encoding] = [JsonWithSchemas(times="adaptive", decimals="precise"), AVRO]
# A value of each mode that nobody could read without its schema.
AMBIGUOUS = [
    ("time.precision.mode", "adaptive"),
    ("decimal.handling.mode", "precise"),
    ("decimal.handling.mode", "double"),
    ("interval.handling.mode", "numeric"),
    ("hstore.handling.mode", "map"),
]


def test_plain_json_carries_no_schema_in_key_or_value() -> None:
    config = postgres(encoding=PlainJson()).config()

    assert config == postgres().config()
    for part in ("key", "value"):
        assert config[f"{part}.converter"] == JSON
        assert config[f"{part}.converter.schemas.enable"] == "false"


def test_without_schemas_every_kind_of_value_describes_itself() -> None:
    config = postgres().config()

    assert config["time.precision.mode"] == "isostring"
    assert config["decimal.handling.mode"] == "string"
    assert config["interval.handling.mode"] == "string"
    assert config["hstore.handling.mode"] == "json"


@pytest.mark.parametrize(("key", "value"), AMBIGUOUS)
def test_values_a_reader_could_not_know_are_refused_without_schemas(key: str, value: str) -> None:
    with pytest.raises(UnsupportedEncoding, match="JSON without schemas") as refused:
        postgres(extra={key: value})

    assert refused.value.place == key
    assert "JsonWithSchemas" in refused.value.remedy


@each_row("encoding", WITH_SCHEMA, ids=["json", "avro"])
@each_row(("key", "value"), AMBIGUOUS)
def test_any_mode_goes_where_keys_and_values_carry_a_schema(encoding: Encoding, key: str, value: str) -> None:
    assert postgres(encoding=encoding, extra={key: value}).config()[key] == value


def test_the_modes_of_times_and_decimals_are_fields_of_an_encoding_with_schemas() -> None:
    config = postgres(encoding=JsonWithSchemas(times="microseconds", decimals="double")).config()

    assert config["time.precision.mode"] == "microseconds"
    assert config["decimal.handling.mode"] == "double"
    assert config["key.converter.schemas.enable"] == config["value.converter.schemas.enable"] == "true"


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_schema_in_one_part_of_the_record_does_not_excuse_the_other(part: str) -> None:
    extra = {f"{part}.converter.schemas.enable": "true", "time.precision.mode": "adaptive"}

    with pytest.raises(UnsupportedEncoding):
        postgres(extra=extra)


@pytest.mark.parametrize("encoding", [PlainJson(), *WITH_SCHEMA], ids=["plain", "json", "avro"])
@pytest.mark.parametrize(
    "extra",
    [
        {"binary.handling.mode": "hex"},
        {"binary.handling.mode": "base64-url-safe"},
        {"unavailable.value.placeholder": "gone"},
    ],
)
def test_what_no_schema_tells_is_refused_in_every_encoding(encoding: Encoding, extra: dict[str, str]) -> None:
    with pytest.raises(UnsupportedEncoding, match="left for a reader to guess"):
        postgres(encoding=encoding, extra=extra)


def test_bytes_and_base64_are_the_same_text_without_schemas() -> None:
    assert postgres(extra={"binary.handling.mode": "base64"}).config()["binary.handling.mode"] == "base64"


@pytest.mark.parametrize("encoding", WITH_SCHEMA, ids=["json", "avro"])
def test_base64_is_one_text_of_many_beside_a_schema(encoding: Encoding) -> None:
    with pytest.raises(UnsupportedEncoding, match="left for a reader to guess"):
        postgres(encoding=encoding, extra={"binary.handling.mode": "base64"})


def test_what_is_passed_unchecked_is_not_looked_at() -> None:
    assert postgres(unchecked={"binary.handling.mode": "hex"}).config()["binary.handling.mode"] == "hex"


def test_avro_has_the_schema_id_in_front_of_the_body() -> None:
    config = postgres(encoding=AVRO).config()

    for part in ("key", "value"):
        registry = f"{part}.converter.apicurio.registry"
        assert config[f"{part}.converter"] == "io.apicurio.registry.utils.converter.AvroConverter"
        assert config[f"{registry}.url"] == AVRO.registry_url
        assert config[f"{registry}.id-handler"] == "io.apicurio.registry.serde.Default4ByteIdHandler"
        assert config[f"{registry}.use-id"] == "contentId"
        assert config[f"{registry}.headers.enabled"] == "false"
        assert config[f"{registry}.auto-register"] == "true"
        assert config[f"{registry}.dereference-schema"] == "true"
    assert config["schema.name.adjustment.mode"] == config["field.name.adjustment.mode"] == "avro"


@pytest.mark.parametrize("declare", [mysql, sqlserver])
def test_other_databases_describe_their_values_too(declare: Any) -> None:
    config = declare().config()

    assert (config["time.precision.mode"], config["decimal.handling.mode"]) == ("isostring", "string")
    with pytest.raises(UnsupportedEncoding):
        declare(extra={"time.precision.mode": "microseconds"})


def test_big_unsigned_integers_of_mysql_stay_numbers_without_schemas() -> None:
    assert mysql().config()["bigint.unsigned.handling.mode"] == "long"
    with pytest.raises(UnsupportedEncoding):
        mysql(extra={"bigint.unsigned.handling.mode": "precise"})


def test_documents_of_mongodb_name_their_types_in_any_encoding() -> None:
    config = mongodb(encoding=AVRO).config()

    assert not {"time.precision.mode", "decimal.handling.mode", "field.name.adjustment.mode"} & config.keys()
    assert config["schema.name.adjustment.mode"] == "avro"


CONVERTERS = [
    "org.apache.kafka.connect.storage.StringConverter",
    "org.apache.kafka.connect.converters.ByteArrayConverter",
]


@each_row("declare", [postgres, mysql, sqlserver, mongodb])
@each_row("part", ["key", "value"])
@each_row("converter", [*CONVERTERS, "com.example.Converter"])
def test_a_converter_whose_records_nobody_reads_is_refused(declare: Any, part: str, converter: str) -> None:
    with pytest.raises(UnsupportedEncoding, match=f"has a {part}.converter") as refused:
        declare(extra={f"{part}.converter": converter})

    assert refused.value.place == f"{part}.converter"
    # The way around, by its own name.
    assert declare(unchecked={f"{part}.converter": converter}).config()[f"{part}.converter"] == converter


def test_confluent_s_avro_is_read_as_apicurio_s() -> None:
    avro = {}
    for part in ("key", "value"):
        avro[f"{part}.converter"] = "io.confluent.connect.avro.AvroConverter"
        avro[f"{part}.converter.ignore.default.for.nullables"] = "true"

    assert postgres(extra={**avro, "time.precision.mode": "adaptive"}).config()["time.precision.mode"] == "adaptive"


def test_one_part_without_schemas_is_enough_to_be_refused() -> None:
    with pytest.raises(UnsupportedEncoding, match="JSON without schemas"):
        postgres(encoding=JsonWithSchemas(times="adaptive"), extra={"key.converter.schemas.enable": "FALSE"})
