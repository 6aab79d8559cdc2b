"""What a connector's declaration says to Kafka Connect, and what it refuses to say."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.connectors.outbox import OutboxSource
from cdc.connectors.postgres import PostgresSource
from cdc.errors import InvalidConnector, LiteralSecret
from cdc.transforms import InsertHeader
from eventstore.errors import InvalidIdentifier

REFERENCE = "${file:/secrets/shop.properties:password}"


def source(**changes: Any) -> PostgresSource:
    fields: dict[str, Any] = {
        "name": "shop-cdc",
        "host": "db",
        "database": "shop",
        "user": "shop_cdc",
        "password": REFERENCE,
        "topic_prefix": "shop",
        "tables": ("public.customers", "public.items"),
    }
    return PostgresSource(**fields | changes)


def outbox(**changes: Any) -> OutboxSource:
    fields = {
        "name": "shop-events",
        "host": "db",
        "database": "shop",
        "user": "shop_cdc",
        "password": REFERENCE,
        "topic_prefix": "shop-events",
    }
    return OutboxSource(**fields | changes)


def test_a_source_says_everything_debezium_would_otherwise_guess() -> None:
    config = source().config()

    assert config["plugin.name"] == "pgoutput"
    assert config["publication.autocreate.mode"] == "disabled"
    assert config["exactly.once.support"] == "required"
    assert config["snapshot.mode"] == "initial"
    assert config["poll.interval.ms"] == "20"
    assert config["offset.mismatch.strategy"] == "trust_offset"
    assert config["time.precision.mode"] == "isostring"
    assert config["decimal.handling.mode"] == "string"
    assert config["topic.creation.default.cleanup.policy"] == "compact"


def test_every_value_of_a_configuration_is_text_as_connect_gives_it_back() -> None:
    config = source(extra={"max.batch.size": 100, "skip.messages.without.change": True}).config()

    assert all(isinstance(value, str) for value in config.values())
    assert config["max.batch.size"] == "100"
    assert config["skip.messages.without.change"] == "true"


def test_table_names_are_patterns_that_match_nothing_else() -> None:
    assert source().config()["table.include.list"] == r"public\.customers,public\.items"


def test_publication_and_slot_are_named_after_the_connector() -> None:
    config = source(name="shop_cdc_2").config()

    assert config["slot.name"] == config["publication.name"] == "factfold_shop_cdc_2"


def test_no_two_connectors_share_publication_and_slot_though_their_letters_be_the_same() -> None:
    names = ["shop_rows", "shop-rows", "shop.rows", "Shop.rows", "SHOP_ROWS", "x" * 60, "x" * 61]
    slots = [source(name=name).slot for name in names]

    assert len(set(slots)) == len(names)
    assert slots[0] == "factfold_shop_rows"
    assert all(slot.startswith("factfold_shop_rows_") for slot in slots[1:5])
    assert {len(slot) for slot in slots[5:]} == {63}
    assert [source(name=name).publication for name in names] == slots


def test_a_name_that_stays_the_same_keeps_its_slot_over_releases() -> None:
    assert source(name="shop-rows").slot == "factfold_shop_rows_49327ddc"


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


def test_a_table_knows_its_topic() -> None:
    assert source().topic("public.items") == "shop.public.items"
    assert source().topics == ("shop.public.customers", "shop.public.items")


def test_a_table_with_history_has_a_topic_that_keeps_every_change() -> None:
    declared = source(history=("public.items",))
    config = declared.config()

    assert config["topic.creation.groups"] == "heartbeat,history"
    assert config["topic.creation.history.include"] == r"shop\.public\.items"
    assert config["topic.creation.history.cleanup.policy"] == "delete"
    assert config["topic.creation.history.retention.ms"] == "-1"
    assert [spec.config["cleanup.policy"] for spec in declared.topic_specs] == ["compact", "delete"]


def test_without_history_no_topic_is_kept_whole() -> None:
    assert source().config()["topic.creation.groups"] == "heartbeat"
    assert {spec.config["cleanup.policy"] for spec in source().topic_specs} == {"compact"}


def test_the_history_of_a_table_that_is_not_captured_is_refused() -> None:
    with pytest.raises(InvalidConnector, match=r"does not capture table 'public\.orders'"):
        source(history=("public.orders",))


def test_transactions_signals_and_notifications_are_off_unless_asked_for() -> None:
    assert not {key for key in source().config() if key.startswith(("signal", "notification", "provide"))}


def test_transactions_are_published_to_a_topic_of_one_partition() -> None:
    declared = source(transactions=True)
    config = declared.config()

    assert declared.transaction_topic == "shop.transaction"
    assert config["provide.transaction.metadata"] == "true"
    assert config["topic.creation.control.include"] == r"shop\.transaction"
    assert config["topic.creation.control.partitions"] == "1"
    assert config["topic.creation.control.cleanup.policy"] == "delete"
    assert config["topic.creation.control.retention.ms"] == "-1"


def test_a_signal_table_is_captured_and_not_published() -> None:
    declared = source(signal_table="public.signals")
    config = declared.config()

    assert config["signal.data.collection"] == "public.signals"
    assert config["signal.enabled.channels"] == "source"
    assert config["table.include.list"].endswith(r",public\.signals")
    assert [str(table) for table in declared.table_names][-1] == "public.signals"
    assert "shop.public.signals" not in declared.topics
    assert config["transforms"] == "signals,unavailable"
    assert config["transforms.signals.type"].endswith(".Filter")
    assert config["predicates.signals.pattern"] == r"shop\.public\.signals"


def test_notifications_go_to_a_topic_of_one_partition() -> None:
    config = source(transactions=True, notifications_topic="shop.notifications").config()

    assert config["notification.enabled.channels"] == "sink"
    assert config["notification.sink.topic.name"] == "shop.notifications"
    assert config["topic.creation.control.include"] == r"shop\.transaction|shop\.notifications"


def test_the_first_life_of_a_source_says_nothing_of_itself() -> None:
    assert "epoch" not in source().config()["transforms"]


def test_a_later_life_is_said_in_every_change_and_in_no_other_record() -> None:
    config = source(epoch=3).config()

    assert config["transforms.epoch.type"].endswith(".InsertField$Value")
    assert config["transforms.epoch.static.field"] == "factfold_epoch"
    assert config["transforms.epoch.static.value"] == "3"
    assert config["predicates.epoch.pattern"] == r"shop\.public\.customers|shop\.public\.items"
    marked = source(epoch=3, transactions=True).config()
    assert marked["predicates.epoch.pattern"] == rf"{config['predicates.epoch.pattern']}|shop\.transaction"


def test_the_user_s_transforms_come_after_the_connector_s_own() -> None:
    declared = source(epoch=1, signal_table="public.signals", transforms=(InsertHeader(header="a", value="b"),))

    assert declared.config()["transforms"] == "signals,epoch,unavailable,insertheader1"


def test_transforms_of_the_declaration_are_not_overwritten_by_extra() -> None:
    with pytest.raises(InvalidConnector, match="a field of the declaration owns it"):
        source(epoch=1, extra={"transforms": "mine"})


@pytest.mark.parametrize("field", ["extra", "unchecked"])
@pytest.mark.parametrize(
    "key",
    [
        "transforms.signals.negate",
        "transforms.signals.type",
        "predicates.signals.pattern",
        "transforms.epoch.static.value",
        # What the declaration does not write, and the transform reads.
        "transforms.epoch.offset.field",
    ],
)
def test_the_connector_s_own_transforms_are_not_turned_around(key: str, field: str) -> None:
    with pytest.raises(InvalidConnector, match="a field of the declaration owns it"):
        source(signal_table="public.signals", epoch=1, **{field: {key: "true"}})


def test_the_outbox_s_transforms_are_not_turned_around() -> None:
    for key in ("transforms.outbox.predicate", "transforms.outbox.negate", "transforms.constant0.header"):
        with pytest.raises(InvalidConnector, match="a field of the declaration owns it"):
            outbox(extra={key: "true"})


def test_the_user_s_transforms_take_further_settings_and_keep_their_own() -> None:
    mine = (InsertHeader(name="mine", header="a", value="b"),)

    assert source(transforms=mine, extra={"transforms.mine.more": "x"}).config()["transforms.mine.more"] == "x"
    with pytest.raises(InvalidConnector, match="a field of the declaration owns it"):
        source(transforms=mine, extra={"transforms.mine.header": "c"})


def test_every_topic_of_its_own_name_is_one_to_be_made_and_looked_at() -> None:
    specs = source(transactions=True, notifications_topic="notes").topic_specs

    assert [spec.name for spec in specs[-2:]] == ["shop.transaction", "notes"]
    assert {(spec.partitions, spec.config["cleanup.policy"]) for spec in specs[-2:]} == {(1, "delete")}
    assert [spec.name for spec in outbox().topic_specs] == ["factfold.schemas"]


def test_the_topic_of_a_table_that_is_not_captured_is_refused() -> None:
    with pytest.raises(InvalidConnector, match="does not capture table"):
        source().topic("public.orders")


def test_a_literal_password_is_refused_and_not_repeated_in_the_error() -> None:
    with pytest.raises(LiteralSecret) as refused:
        source(password="sentinel-secret")

    assert "sentinel-secret" not in str(refused.value)
    assert "factfold cdc prepare" in refused.value.remedy


def test_a_literal_password_passes_when_asked_for_and_stays_masked() -> None:
    declared = source(password="sentinel-secret", allow_literal_secrets=True)

    assert declared.config()["database.password"] == "sentinel-secret"
    assert "sentinel-secret" not in repr(declared)
    assert "sentinel-secret" not in str(declared)


def test_extra_settings_are_masked_too() -> None:
    declared = source(extra={"database.sslpassword": REFERENCE, "errors.max.retries": "77"})

    assert "77" not in repr(declared)
    assert "errors.max.retries" in repr(declared)


def test_a_literal_secret_among_the_extra_settings_is_refused() -> None:
    with pytest.raises(LiteralSecret, match=r"database\.sslpassword"):
        source(extra={"database.sslpassword": "sentinel-secret"})


def test_a_misspelt_setting_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InvalidConnector) as refused:
        source(extra={"snapshot.mod": "initial"})

    assert refused.value.remedy == "did you mean snapshot.mode?"


@pytest.mark.parametrize(
    "key",
    [
        "max.batch.size",
        "column.mask.with.12.chars",
        "transforms.x.type",
        "producer.override.linger.ms",
        "snapshot.select.statement.overrides.public.items",
    ],
)
def test_settings_of_the_connector_and_of_connect_are_known(key: str) -> None:
    assert source(extra={key: "1"}).config()[key] == "1"


@pytest.mark.parametrize("key", ["database.password", "slot.name", "connector.class", "heartbeat.interval.ms"])
def test_a_setting_that_has_a_field_is_refused_as_extra(key: str) -> None:
    with pytest.raises(InvalidConnector, match="a field of the declaration owns it"):
        source(extra={key: "x"})


def test_a_key_that_no_list_knows_goes_through_as_unchecked() -> None:
    declared = source(unchecked={"brand.new.setting": 5})

    assert declared.config()["brand.new.setting"] == "5"
    assert "unchecked=['brand.new.setting']" in repr(declared)


def test_an_unchecked_key_that_sounds_secret_takes_a_reference_only() -> None:
    assert source(unchecked={"brand.new.password": REFERENCE}).config()["brand.new.password"] == REFERENCE
    with pytest.raises(LiteralSecret, match=r"brand\.new\.password") as refused:
        source(unchecked={"brand.new.password": "sentinel-secret"})
    assert "sentinel-secret" not in str(refused.value)


def test_an_unchecked_key_that_has_a_field_is_refused() -> None:
    with pytest.raises(InvalidConnector, match="a field of the declaration owns it"):
        source(unchecked={"slot.name": "x"})


def test_a_secret_that_only_a_group_of_keys_covers_is_known_by_its_name() -> None:
    with pytest.raises(LiteralSecret):
        source(extra={"producer.override.sasl.jaas.config": "password=sentinel"})


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a/b"},
        {"tables": ("customers",)},
        {"tables": ('public.x"; DROP TABLE customers; --',)},
        {"tables": ("public.a,public.b",)},
        {"slot": "Upper"},
        {"publication": "p'; --"},
        {"topic_prefix": "a b"},
        {"topic_prefix": "x" * 64},
    ],
)
def test_names_out_of_their_rules_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidIdentifier):
        source(**changes)


@pytest.mark.parametrize("changes", [{"tables": ()}, {"partitions": 0}, {"heartbeat_interval_ms": 0}, {"epoch": -1}])
def test_declarations_that_capture_nothing_or_cannot_start_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidConnector):
        source(**changes)


def test_an_outbox_places_key_partition_and_headers_from_columns() -> None:
    config = outbox().config()
    placements = config["transforms.outbox.table.fields.additional.placement"].split(",")

    assert config["transforms.outbox.table.field.event.key"] == "message_key"
    assert config["transforms.outbox.route.by.field"] == "topic"
    assert "partition:partition" in placements
    assert "stream:header:ce_subject" in placements
    assert "version:header:ce_streamversion" in placements


def test_constant_headers_are_written_as_the_transform_gives_them_back() -> None:
    config = outbox().config()
    literals = {
        config[key.replace("value.literal", "header")]: value
        for key, value in config.items()
        if key.endswith(".value.literal")
    }

    assert literals == {"content-type": "application/avro", "ce_specversion": "1.0000000001"}


def test_an_outbox_stops_at_an_update_unless_told_otherwise() -> None:
    key = "transforms.outbox.table.op.invalid.behavior"

    assert outbox().config()[key] == "fatal"
    assert outbox(on_update="warn").config()[key] == "warn"


def test_the_initial_snapshot_of_events_is_read_in_the_store_s_order() -> None:
    config = outbox(tables=("shop.events", "shop.schemas")).config()

    assert config["snapshot.select.statement.overrides"] == "shop.events"
    assert config["snapshot.select.statement.overrides.shop.events"].endswith('ORDER BY "position"')
