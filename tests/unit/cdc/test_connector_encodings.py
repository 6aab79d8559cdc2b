"""How a source says its records are written, and which ways of writing are refused."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.connectors.encodings import ApicurioAvro, Encoding, JsonWithSchemas, PlainJson
from cdc.errors import UnsupportedEncoding
from tests.rows import each_row
from tests.unit.cdc.declared import custom, mysql, postgres

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


AS_TEXT = {"time.precision.mode": "isostring", "decimal.handling.mode": "string"}
IN_AVRO = {
    "url": AVRO.registry_url, "id-handler": "io.apicurio.registry.serde.Default4ByteIdHandler", "use-id": "contentId",
    "headers.enabled": "false", "auto-register": "true", "dereference-schema": "true",
}  # fmt: skip
SAID: list[tuple[Any, dict[str, str | None]]] = [
    # Without schemas every kind of value describes itself.
    (postgres(encoding=PlainJson()), AS_TEXT | {
        "interval.handling.mode": "string", "hstore.handling.mode": "json",
        "key.converter": JSON, "key.converter.schemas.enable": "false",
        "value.converter": JSON, "value.converter.schemas.enable": "false",
    }),
    (mysql(), AS_TEXT),
    # The modes of times and decimals are fields of an encoding with schemas.
    (postgres(encoding=JsonWithSchemas(times="microseconds", decimals="double")), {
        "time.precision.mode": "microseconds", "decimal.handling.mode": "double",
        "key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true",
    }),
    *((postgres(encoding=encoding, extra={key: value}), {key: value})
      for encoding in WITH_SCHEMA for key, value in AMBIGUOUS),
    # Bytes and base64 are the same text without schemas, and what is passed unchecked is not looked at.
    (postgres(extra={"binary.handling.mode": "base64"}), {"binary.handling.mode": "base64"}),
    (postgres(unchecked={"binary.handling.mode": "hex"}), {"binary.handling.mode": "hex"}),
    # Avro has the id of the schema in front of the body.
    *((postgres(encoding=AVRO), {
        f"{part}.converter": "io.apicurio.registry.utils.converter.AvroConverter",
        "schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro",
        **{f"{part}.converter.apicurio.registry.{key}": value for key, value in IN_AVRO.items()},
    }) for part in ("key", "value")),
    (mysql(), {"bigint.unsigned.handling.mode": "long"}),
    # Confluent's Avro is read as Apicurio's.
    (postgres(extra={"time.precision.mode": "adaptive"} | {
        f"{part}.converter{key}": value for part in ("key", "value")
        for key, value in (("", "io.confluent.connect.avro.AvroConverter"), (".ignore.default.for.nullables", "true"))
    }), {"time.precision.mode": "adaptive"}),
]  # fmt: skip


@each_row(("declared", "settings"), SAID)
def test_an_encoding_says_how_records_are_written(declared: Any, settings: dict[str, str | None]) -> None:
    config = declared.config()
    assert {key: config.get(key) for key in settings} == settings


def test_json_without_schemas_is_what_is_not_said() -> None:
    assert postgres(encoding=PlainJson()).config() == postgres().config()


@pytest.mark.parametrize(("key", "value"), AMBIGUOUS)
def test_values_a_reader_could_not_know_are_refused_without_schemas(key: str, value: str) -> None:
    with pytest.raises(UnsupportedEncoding, match="JSON without schemas") as refused:
        postgres(extra={key: value})

    assert refused.value.place == key
    assert "JsonWithSchemas" in refused.value.remedy


ADAPTIVE = {"time.precision.mode": "adaptive"}


@each_row(
    "ask",
    [
        # A schema in one part of the record does not excuse the other.
        lambda: postgres(extra=ADAPTIVE | {"key.converter.schemas.enable": "true"}),
        lambda: postgres(extra=ADAPTIVE | {"value.converter.schemas.enable": "true"}),
        lambda: postgres(
            encoding=JsonWithSchemas(times="adaptive"), extra={"key.converter.schemas.enable": "FALSE"}
        ),
        lambda: mysql(extra={"time.precision.mode": "microseconds"}),
        lambda: mysql(extra={"bigint.unsigned.handling.mode": "precise"}),
    ],
)  # fmt: skip
def test_what_one_part_without_schemas_does_not_tell_is_refused(ask: Any) -> None:
    with pytest.raises(UnsupportedEncoding, match="JSON without schemas"):
        ask()


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


@pytest.mark.parametrize("encoding", WITH_SCHEMA, ids=["json", "avro"])
def test_base64_is_one_text_of_many_beside_a_schema(encoding: Encoding) -> None:
    with pytest.raises(UnsupportedEncoding, match="left for a reader to guess"):
        postgres(encoding=encoding, extra={"binary.handling.mode": "base64"})


CONVERTERS = [
    "org.apache.kafka.connect.storage.StringConverter",
    "org.apache.kafka.connect.converters.ByteArrayConverter",
]


@each_row("declare", [postgres, mysql, custom])
@each_row("part", ["key", "value"])
@each_row("converter", [*CONVERTERS, "com.example.Converter"])
def test_a_converter_whose_records_nobody_reads_is_refused(declare: Any, part: str, converter: str) -> None:
    with pytest.raises(UnsupportedEncoding, match=f"has a {part}.converter") as refused:
        declare(extra={f"{part}.converter": converter})

    assert refused.value.place == f"{part}.converter"
    # The way around, by its own name.
    assert declare(unchecked={f"{part}.converter": converter}).config()[f"{part}.converter"] == converter
