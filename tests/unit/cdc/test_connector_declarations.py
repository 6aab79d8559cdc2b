"""What a connector's declaration says to Kafka Connect, and what it refuses to say."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import cdc
from cdc import transforms
from cdc.connectors.base import setting
from cdc.connectors.encodings import ApicurioAvro, Encoding, JsonWithSchemas, PlainJson
from cdc.connectors.postgres import PostgresSource
from cdc.errors import InvalidConnector, UnsupportedEncoding
from cdc.transforms import Filter, Flatten, InsertHeader, RecordPredicate, Transform
from eventstore.errors import InvalidIdentifier
from tests.errors import raises
from tests.rows import each_row
from tests.unit.cdc.declared import REFERENCE, custom, mysql, outbox, postgres

OWNED = "a field of the declaration owns it"
MINE = (InsertHeader(name="mine", header="a", value="b"),)


def source(**changes: Any) -> PostgresSource:
    return postgres(**{"tables": ("public.customers", "public.items")} | changes)


TABLES = r"shop\.public\.customers|shop\.public\.items"
SAID: list[tuple[Any, dict[str, str]]] = [
    # What Debezium would guess otherwise.
    (source(), {
        "plugin.name": "pgoutput", "publication.autocreate.mode": "disabled", "exactly.once.support": "required",
        "snapshot.mode": "initial", "poll.interval.ms": "20", "offset.mismatch.strategy": "trust_offset",
        "time.precision.mode": "isostring", "decimal.handling.mode": "string",
        "topic.creation.default.cleanup.policy": "compact", "topic.creation.groups": "heartbeat",
        "table.include.list": r"public\.customers,public\.items", "transforms": "unavailable",
    }),
    # Values are text, as Connect gives them back.
    (source(extra={"max.batch.size": 100, "skip.messages.without.change": True}),
     {"max.batch.size": "100", "skip.messages.without.change": "true"}),
    (source(name="shop_cdc_2"), {"slot.name": "factfold_shop_cdc_2", "publication.name": "factfold_shop_cdc_2"}),
    # A table with history has a topic that keeps every change.
    (source(history=("public.items",)), {
        "topic.creation.groups": "heartbeat,history", "topic.creation.history.include": r"shop\.public\.items",
        "topic.creation.history.cleanup.policy": "delete", "topic.creation.history.retention.ms": "-1",
    }),
    # Control topics have one partition.
    (source(transactions=True), {
        "provide.transaction.metadata": "true", "topic.creation.control.include": r"shop\.transaction",
        "topic.creation.control.partitions": "1", "topic.creation.control.cleanup.policy": "delete",
        "topic.creation.control.retention.ms": "-1",
    }),
    (source(transactions=True, notifications_topic="shop.notifications"), {
        "notification.enabled.channels": "sink", "notification.sink.topic.name": "shop.notifications",
        "topic.creation.control.include": r"shop\.transaction|shop\.notifications",
    }),
    # A signal table is captured and not published.
    (source(signal_table="public.signals"), {
        "signal.data.collection": "public.signals", "signal.enabled.channels": "source",
        "table.include.list": r"public\.customers,public\.items,public\.signals", "transforms": "signals,unavailable",
        "transforms.signals.type": "org.apache.kafka.connect.transforms.Filter",
        "predicates.signals.pattern": r"shop\.public\.signals",
    }),
    # A later life of the source is said in every change, and in no other record.
    (source(epoch=3), {
        "transforms.epoch.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.epoch.static.field": "factfold_epoch", "transforms.epoch.static.value": "3",
        "predicates.epoch.pattern": TABLES,
    }),
    (source(epoch=3, transactions=True), {"predicates.epoch.pattern": rf"{TABLES}|shop\.transaction"}),
    # The user's transforms come after the connector's own, and take further settings.
    (source(epoch=1, signal_table="public.signals", transforms=MINE), {"transforms": "signals,epoch,unavailable,mine"}),
    (source(transforms=MINE, extra={"transforms.mine.more": "x"}), {"transforms.mine.more": "x"}),
    # Settings of the connector and of Connect are known by name, others go through as unchecked.
    *((source(extra={key: "1"}), {key: "1"}) for key in (
        "max.batch.size", "column.mask.with.12.chars", "transforms.x.type", "producer.override.linger.ms",
        "snapshot.select.statement.overrides.public.items")),
    (source(unchecked={"brand.new.setting": 5}), {"brand.new.setting": "5"}),
    (source(unchecked={"brand.new.password": REFERENCE}), {"brand.new.password": REFERENCE}),
    # An outbox stops at an update unless told otherwise, and its first snapshot is read in the order of the store.
    (outbox(), {
        "transforms.outbox.table.field.event.key": "message_key", "transforms.outbox.route.by.field": "topic",
        "transforms.outbox.table.op.invalid.behavior": "fatal",
    }),
    (outbox(on_update="warn"), {"transforms.outbox.table.op.invalid.behavior": "warn"}),
    (outbox(tables=("shop.events", "shop.schemas")), {"snapshot.select.statement.overrides": "shop.events"}),
]  # fmt: skip


def test_transactions_signals_and_notifications_are_off_unless_asked_for() -> None:
    assert not {key for key in source().config() if key.startswith(("signal", "notification", "provide"))}


def test_no_two_connectors_share_publication_and_slot_though_their_letters_be_the_same() -> None:
    names = ["shop_rows", "shop-rows", "shop.rows", "Shop.rows", "SHOP_ROWS", "x" * 60, "x" * 61]
    slots = [source(name=name).slot for name in names]
    assert len(set(slots)) == len(names)
    assert slots[:2] == ["factfold_shop_rows", "factfold_shop_rows_49327ddc"]  # the same in every release
    assert all(slot.startswith("factfold_shop_rows_") for slot in slots[1:5])
    assert {len(slot) for slot in slots[5:]} == {63}
    assert [source(name=name).publication for name in names] == slots


@pytest.mark.parametrize("name", ["shop-cdc", "Shop", "shop cdc", 'a"b', "käufer", "x" * 63])
def test_users_and_databases_have_any_name_that_postgresql_takes(name: str) -> None:
    config = source(user=name, database=name).config()
    assert (config["database.user"], config["database.dbname"]) == (name, name)


@pytest.mark.parametrize("field", ["user", "database"])
@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, "ä" * 32, "a${file:/b:c}", "a%b", "a\nb"])
def test_users_and_databases_that_cannot_be_are_refused_when_they_are_declared(field: str, name: str) -> None:
    with pytest.raises(InvalidIdentifier) as refused:
        source(**{field: name})
    assert refused.value.place == field
    assert source(**{field: REFERENCE})


def test_tables_know_their_topics_and_how_long_they_are_kept() -> None:
    assert source().topics == ("shop.public.customers", "shop.public.items")
    assert "shop.public.signals" not in source(signal_table="public.signals").topics
    for history, policies in (((), ["compact", "compact"]), (("public.items",), ["compact", "delete"])):
        assert [spec.config["cleanup.policy"] for spec in source(history=history).topic_specs] == policies
    for ask in (lambda: source(history=("public.orders",)), lambda: source().topic("public.orders")):
        with pytest.raises(InvalidConnector, match=r"does not capture table 'public\.orders'"):
            ask()


def test_every_topic_of_its_own_name_is_one_to_be_made_and_looked_at() -> None:
    specs = source(transactions=True, notifications_topic="notes").topic_specs
    assert [spec.name for spec in specs[-2:]] == ["shop.transaction", "notes"]
    assert {(spec.partitions, spec.config["cleanup.policy"]) for spec in specs[-2:]} == {(1, "delete")}
    assert [spec.name for spec in outbox().topic_specs] == ["factfold.schemas"]


OF_FIELDS = ("database.password", "slot.name", "connector.class", "heartbeat.interval.ms", "transforms")
# What the declaration does not write, and the transform reads, is owned too.
OF_TRANSFORMS = ("transforms.signals.negate", "transforms.signals.type", "predicates.signals.pattern",
                 "transforms.epoch.static.value", "transforms.epoch.offset.field",
                 "transforms.mine.header")  # fmt: skip


@each_row("field", ["extra", "unchecked"])
@each_row("key", [*OF_FIELDS, *OF_TRANSFORMS])
def test_a_setting_that_has_a_field_and_the_connector_s_own_transforms_are_not_overwritten(key, field):
    with pytest.raises(InvalidConnector, match=OWNED):
        source(signal_table="public.signals", epoch=1, transforms=MINE, **{field: {key: "true"}})


@each_row("key", ["transforms.outbox.predicate", "transforms.outbox.negate", "transforms.constant0.header"])
def test_the_outbox_s_transforms_are_not_turned_around(key: str) -> None:
    with pytest.raises(InvalidConnector, match=OWNED):
        outbox(extra={key: "true"})


def test_a_literal_password_passes_when_asked_for_and_stays_masked() -> None:
    declared = source(password="sentinel-secret", allow_literal_secrets=True)
    assert declared.config()["database.password"] == "sentinel-secret"
    assert "sentinel-secret" not in f"{declared!r} {declared}"


def test_of_further_settings_the_keys_are_shown_and_not_the_values() -> None:
    declared = source(extra={"errors.max.retries": "77"}, unchecked={"brand.new.setting": 5})
    assert "77" not in repr(declared)
    assert "errors.max.retries" in repr(declared)
    assert "unchecked=['brand.new.setting']" in repr(declared)


def test_an_unchecked_key_that_sounds_secret_takes_a_reference_only() -> None:
    with raises(InvalidConnector, code="literal-secret", match=r"brand\.new\.password") as refused:
        source(unchecked={"brand.new.password": "sentinel-secret"})
    assert "sentinel-secret" not in str(refused.value)


def test_an_outbox_places_partition_and_headers_from_columns_and_constants() -> None:
    config = outbox(tables=("shop.events", "shop.schemas")).config()
    placements = config["transforms.outbox.table.fields.additional.placement"].split(",")
    assert {"partition:partition", "stream:header:ce_subject", "version:header:ce_streamversion"} <= {*placements}
    assert config["snapshot.select.statement.overrides.shop.events"].endswith('ORDER BY "position"')
    literals = {config[key.replace("value.literal", "header")]: value
                for key, value in config.items() if key.endswith(".value.literal")}  # fmt: skip
    assert literals == {"content-type": "application/avro", "ce_specversion": "1.0000000001"}


# ---- How a source says its records are written, and which ways of writing are refused


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
WRITTEN: list[tuple[Any, dict[str, str | None]]] = [
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


@each_row(("declared", "settings"), [*SAID, *WRITTEN])
def test_a_declaration_says_what_it_was_told_and_what_debezium_would_guess(declared, settings):
    config = declared.config()
    assert {key: config.get(key) for key in settings} == settings
    assert all(isinstance(value, str) for value in config.values())


def test_json_without_schemas_is_what_is_not_said() -> None:
    assert postgres(encoding=PlainJson()).config() == postgres().config()


@pytest.mark.parametrize(("key", "value"), AMBIGUOUS)
def test_values_a_reader_could_not_know_are_refused_without_schemas(key: str, value: str) -> None:
    with pytest.raises(UnsupportedEncoding, match="JSON without schemas") as refused:
        postgres(extra={key: value})

    assert refused.value.place == key
    assert "JsonWithSchemas" in refused.value.remedy


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


# ---- What values fields and further settings take, one or several, and where a refusal says it is


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
        postgres(**changes)

    assert refused.value.place == place


def test_a_topic_may_be_as_long_as_kafka_s() -> None:
    assert postgres(notifications_topic="x" * 249).notifications_topic == "x" * 249
    with pytest.raises(InvalidIdentifier):
        postgres(notifications_topic="x" * 250)


@pytest.mark.parametrize("port", [0, -1, 65536, "x", "5432", True, None])
def test_a_port_is_a_number_of_sixteen_bits(port: Any) -> None:
    with pytest.raises(InvalidConnector, match="no valid port"):
        postgres(port=port)
    assert postgres(port=65535).config()["database.port"] == "65535"


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
    assert key in postgres(extra={key: right}).config()
    with pytest.raises(InvalidConnector, match="a value that is no") as refused:
        postgres(extra={key: wrong})
    assert refused.value.place == key
    assert postgres(unchecked={key: wrong}).config()[key] == setting(wrong)


def test_a_value_of_another_type_is_not_repeated_in_the_error() -> None:
    with pytest.raises(InvalidConnector) as refused:
        postgres(extra={"max.batch.size": "sentinel"})
    assert "sentinel" not in str(refused.value)


def test_a_key_that_stands_for_many_has_a_list_of_columns_as_its_value() -> None:
    assert postgres(extra={"column.truncate.to.20.chars": "public.items.name"}).config()


@pytest.mark.parametrize("field", ["extra", "unchecked"])
@pytest.mark.parametrize("value", [None, ["a"], {"a": 1}, b"x"])
def test_a_value_that_is_no_text_number_or_boolean_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidConnector, match="neither text, number nor boolean") as refused:
        postgres(**{field: {"max.batch.size": value}})
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
