"""How the records of a source are written: what a reader must know to give every value its type again.

JSON without schemas does not say that 15736 is a date, so with it every value describes itself: times are ISO text,
decimals are text. A schema travels with each record, or stands in a registry, in the other two encodings, and any
precision may be chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from cdc.connectors.base import holds_secret
from cdc.errors import InvalidConnector, UnsupportedEncoding

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
AVRO_CONVERTER: Final = "io.apicurio.registry.utils.converter.AvroConverter"
_CONFLUENT_AVRO: Final = "io.confluent.connect.avro.AvroConverter"
_CARRY_SCHEMAS: Final = frozenset({AVRO_CONVERTER, _CONFLUENT_AVRO})
# Connect's converters write a column's DEFAULT in place of a NULL, unless a setting of theirs has this value; next to
# it, the setting's own default. Apicurio's converter 3.0.9 has the code and no setting for it.
_NULLS_STAY: Final = {
    JSON_CONVERTER: ("replace.null.with.default", "false", "true"),
    _CONFLUENT_AVRO: ("ignore.default.for.nullables", "true", "false"),
}
SCHEMAS_ENABLED: Final = "schemas.enable"

Times = Literal["isostring", "adaptive", "adaptive_time_microseconds", "microseconds", "connect"]
Decimals = Literal["string", "precise", "double"]
# A setting of Debezium's and its values that a reader understands, the one we write first.
Modes = Mapping[str, tuple[str, ...]]

# Base64 either way, where the declared type says that the text is bytes.
TEXT_OR_BYTES: Final = {"binary.handling.mode": ("bytes", "base64")}
# Nanoseconds fill 64 bits in 2262: what is later, or before 1677, comes as null, and nothing says so.
PRESERVED_TIMES: Final = {
    "time.precision.mode": ("isostring", "adaptive", "adaptive_time_microseconds", "microseconds", "connect")
}
# With a schema that says `bytes` or `string`, text could be base64, another base64, or hexadecimal.
BYTES: Final = {"binary.handling.mode": ("bytes",)}


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How keys and values are written. Use PlainJson, JsonWithSchemas or ApicurioAvro.

    Examples:
        >>> encoding: Encoding = JsonWithSchemas()
        >>> PostgresSource(**shop, encoding=encoding).encoding.carries_schema
        True
    """

    carries_schema: ClassVar[bool]

    def converter(self) -> dict[str, str]:
        """Return the converter and its settings, without the prefix `key.` or `value.`."""
        raise NotImplementedError

    def converters(self) -> dict[str, str]:
        """Return the settings of the converters of keys and values, which are always the same."""
        return {f"{part}.{key}": value for part in ("key", "value") for key, value in self.converter().items()}

    def modes(self) -> dict[str, str]:
        """Return the chosen modes, by Debezium's keys."""
        return {}


@dataclass(frozen=True, kw_only=True)
class PlainJson(Encoding):
    """JSON without schemas. Every value describes itself.

    Examples:
        >>> PostgresSource(**shop, encoding=PlainJson()) == PostgresSource(**shop)
        True
    """

    carries_schema = False

    def converter(self) -> dict[str, str]:
        """Return Kafka's JSON converter, schemas off."""
        return _json(schemas="false")


@dataclass(frozen=True, kw_only=True)
class _WithSchemas(Encoding):
    carries_schema = True

    times: Times = "isostring"
    decimals: Decimals = "string"

    def modes(self) -> dict[str, str]:
        """Return the modes of times and decimals."""
        return {"time.precision.mode": self.times, "decimal.handling.mode": self.decimals}


@dataclass(frozen=True, kw_only=True)
class JsonWithSchemas(_WithSchemas):
    """JSON with the schema in every key and every value, some kilobytes each.

    The schema is a part of the key's bytes: another type of a key column makes other keys for compaction and
    partitions.

    Attributes:
        times: Debezium's mode of times.
        decimals: Debezium's mode of decimals.

    Examples:
        >>> PostgresSource(**shop, encoding=JsonWithSchemas(times="microseconds"))
    """

    def converter(self) -> dict[str, str]:
        """Return Kafka's JSON converter, schemas on."""
        return _json(schemas="true")


@dataclass(frozen=True, kw_only=True)
class ApicurioAvro(_WithSchemas):
    """Avro in Confluent framing (0, a schema id of 4 bytes, the body), with schemas in an Apicurio registry.

    The worker needs Apicurio's converter (apicurio-registry-distro-connect-converter 3.0.9) in its plug-in path. Ids
    are content ids, which the same registry also serves under `/apis/ccompat/v7/schemas/ids/…`.

    The converter writes a column's DEFAULT in place of a NULL. With the source, `apply_connector`, `plan_connectors`
    and `factfold cdc doctor` refuse a captured table that has a nullable column with a DEFAULT.

    Attributes:
        registry_url: The registry's own interface as the worker sees it, without a login.
        times: Debezium's mode of times.
        decimals: Debezium's mode of decimals.

    Examples:
        >>> encoding = ApicurioAvro(registry_url="http://registry:8080/apis/registry/v3")
        >>> PostgresSource(**shop, encoding=encoding)
    """

    registry_url: str

    def __post_init__(self) -> None:
        if holds_secret("", self.registry_url):
            raise InvalidConnector(
                "the registry's URL carries a login, which Connect would store and show in clear",
                remedy="take it out, and pass {key,value}.converter.apicurio.registry.auth.username and …auth.password "
                "as extra, the password as a reference",
                place="registry_url",
                code="literal-secret",
            )

    def converter(self) -> dict[str, str]:
        """Return Apicurio's converter: it registers schemas, and puts the id before the body instead of a header."""
        registry = {
            "url": self.registry_url,
            "auto-register": "true",
            "auto-register.if-exists": "FIND_OR_CREATE_VERSION",
            "find-latest": "false",
            # Else nested records are schemas of their own, and none is whole.
            "dereference-schema": "true",
            "headers.enabled": "false",
            "id-handler": "io.apicurio.registry.serde.Default4ByteIdHandler",
            "use-id": "contentId",
        }
        settings = {f"converter.apicurio.registry.{key}": value for key, value in registry.items()}
        return {"converter": AVRO_CONVERTER, **settings}

    def modes(self) -> dict[str, str]:
        """Return the modes, and names that Avro allows."""
        return {**super().modes(), "schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"}


def _json(*, schemas: str) -> dict[str, str]:
    setting, keeps, _ = _NULLS_STAY[JSON_CONVERTER]
    return {"converter": JSON_CONVERTER, f"converter.{SCHEMAS_ENABLED}": schemas, f"converter.{setting}": keeps}


def replaces_nulls(config: Mapping[str, str], part: str = "value") -> bool:
    """Whether the converter of keys or of values writes a column's DEFAULT in place of a NULL, as far as we know it."""
    converter = config.get(f"{part}.converter", "")
    if converter not in _NULLS_STAY:
        return converter == AVRO_CONVERTER
    setting, keeps, default = _NULLS_STAY[converter]
    return config.get(f"{part}.converter.{setting}", default).lower() != keeps


def check_nulls(config: Mapping[str, str], *, connector: str) -> None:
    """Refuse a converter that is set, or left, to write a DEFAULT in place of a NULL; UnsupportedEncoding.

    Apicurio's passes: it has no setting for it, and only the source's tables tell whether it does harm.
    """
    for part in ("key", "value"):
        converter = config[f"{part}.converter"]
        if converter in _NULLS_STAY and replaces_nulls(config, part):
            setting, keeps, default = _NULLS_STAY[converter]
            key = f"{part}.converter.{setting}"
            raise UnsupportedEncoding(
                f"connector {connector!r} has {key}={config.get(key, default)}: "
                "a NULL in a nullable column with a DEFAULT would arrive as the default",
                remedy=f"set {key}={keeps}",
                place=key,
            )


def carries_schema(config: Mapping[str, str], *, connector: str) -> bool:
    """Whether keys and values of a whole configuration say what they are, by a schema; UnsupportedEncoding."""
    return all([_part_carries_schema(config, part, connector) for part in ("key", "value")])


def _part_carries_schema(config: Mapping[str, str], part: str, connector: str) -> bool:
    converter = config[f"{part}.converter"]
    if converter == JSON_CONVERTER:
        # The converter's own default is true.
        return config.get(f"{part}.converter.{SCHEMAS_ENABLED}", "true").lower() == "true"
    if converter not in _CARRY_SCHEMAS:
        raise UnsupportedEncoding(
            f"connector {connector!r} has a {part}.converter whose records no reader of Factfold's can read",
            remedy=f"keep {JSON_CONVERTER} or an Avro converter of Apicurio's or Confluent's",
            place=f"{part}.converter",
        )
    return True


def check_modes(config: Mapping[str, str], *, plain: Modes, with_schema: Modes, connector: str) -> None:
    """Refuse a configuration whose values a reader would have to guess; UnsupportedEncoding.

    Each mode with the values that can be read: `plain` where no schema comes with them, `with_schema` where one does.
    """
    schemas = carries_schema(config, connector=connector)
    for key, allowed in (with_schema if schemas else plain).items():
        if config.get(key, allowed[0]) not in allowed:
            helps = not schemas and config[key] in with_schema.get(key, (config[key],))
            raise _unsupported(key, config[key], allowed, schema_helps=helps, connector=connector)


def _unsupported(
    key: str, value: str, allowed: tuple[str, ...], *, schema_helps: bool, connector: str
) -> UnsupportedEncoding:
    keep = f"keep {key}={' or '.join(allowed)}"
    if schema_helps:
        return UnsupportedEncoding(
            f"connector {connector!r} sends JSON without schemas with {key}={value}: "
            "its values cannot be distinguished from plain numbers and text",
            remedy=f"{keep}, or choose an encoding with schemas (encoding=JsonWithSchemas(), ApicurioAvro(…))",
            place=key,
        )
    return UnsupportedEncoding(
        f"connector {connector!r} has {key}={value}: values would be lost on the way, or left for a reader to guess",
        remedy=keep,
        place=key,
    )
