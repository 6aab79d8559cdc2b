"""What a connector's declaration says to Kafka Connect, and what it refuses to say."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.connectors.postgres import PostgresSource
from cdc.errors import InvalidConnector
from cdc.transforms import InsertHeader
from eventstore.errors import InvalidIdentifier
from tests.errors import raises
from tests.rows import each_row
from tests.unit.cdc.declared import REFERENCE, outbox, postgres

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


@each_row(("declared", "settings"), SAID)
def test_a_declaration_says_what_it_was_told_and_what_debezium_would_guess(declared, settings):
    config = declared.config()
    assert {key: config.get(key) for key in settings} == settings
    assert all(isinstance(value, str) for value in config.values())


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
