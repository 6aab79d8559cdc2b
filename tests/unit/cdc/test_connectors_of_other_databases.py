"""Sources of MySQL, MariaDB, SQL Server and MongoDB: what they say, and what they refuse to say."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.connect.status import SourceOffset
from cdc.errors import InvalidConnector, LiteralSecret
from eventstore.errors import FactfoldError, InvalidIdentifier
from tests.unit.cdc.declared import DEBEZIUM, REFERENCE, mariadb, mirror, mongodb, mysql, postgres, sqlserver

ELSEWHERE = (mysql, mariadb, sqlserver, mongodb)


@pytest.mark.parametrize("declare", ELSEWHERE)
def test_every_source_says_what_debezium_would_otherwise_guess(declare: Any) -> None:
    config = declare().config()

    assert config["exactly.once.support"] == "required"
    assert config["heartbeat.interval.ms"] == "1000"
    assert config["snapshot.mode"] == "initial"
    assert config["tombstones.on.delete"] == "true"
    assert config["topic.creation.default.cleanup.policy"] == "compact"


@pytest.mark.parametrize("declare", DEBEZIUM)
def test_every_value_is_text(declare: Any) -> None:
    assert {type(value) for value in declare().config().values()} == {str}


@pytest.mark.parametrize("declare", [mysql, mariadb])
def test_tables_of_a_binary_log_are_named_by_database(declare: Any) -> None:
    declared = declare(tables=("shop.items", "shop.orders", "crm.people"))
    config = declared.config()

    assert declared.topics == ("shop.shop.items", "shop.shop.orders", "shop.crm.people")
    assert config["table.include.list"] == r"shop\.items,shop\.orders,crm\.people"
    assert config["database.include.list"] == "shop,crm"


def test_the_history_of_definitions_has_a_topic_named_after_the_prefix() -> None:
    config = mysql().config()

    assert config["schema.history.internal.kafka.topic"] == "shop.schema-history"
    assert config["schema.history.internal.kafka.bootstrap.servers"] == "kafka:9092"
    assert config["include.schema.changes"] == "false"


def test_a_server_id_stays_the_same_and_is_no_other_connector_s() -> None:
    assert mysql().server_id == mysql().server_id != mysql(name="other").server_id
    assert mysql(server_id=7).config()["database.server.id"] == "7"
    assert 100_000 <= mysql().server_id < 2**32


def test_sql_server_captures_each_table_in_each_database() -> None:
    declared = sqlserver(databases=("shop", "crm"), tables=("dbo.items", "dbo.orders"))
    config = declared.config()

    assert declared.topics == (
        "shop.shop.dbo.items",
        "shop.shop.dbo.orders",
        "shop.crm.dbo.items",
        "shop.crm.dbo.orders",
    )
    assert declared.topic("crm.dbo.items") == "shop.crm.dbo.items"
    assert config["database.names"] == "shop,crm"
    assert config["table.include.list"] == r"dbo\.items,dbo\.orders"


def test_connections_to_sql_server_are_encrypted_unless_told_otherwise() -> None:
    assert sqlserver().config()["driver.encrypt"] == "true"
    assert sqlserver().config()["driver.trustServerCertificate"] == "false"
    assert sqlserver(encrypt=False, trust_certificate=True).config()["driver.encrypt"] == "false"


def test_collections_are_patterns_that_match_nothing_else() -> None:
    declared = mongodb(collections=("shop.items", "shop.log.2024"))

    assert declared.config()["collection.include.list"] == r"shop\.items,shop\.log\.2024"
    assert declared.topics == ("shop.shop.items", "shop.shop.log.2024")
    assert declared.config()["capture.mode"] == "change_streams_update_full"


def test_a_connection_string_without_a_password_is_no_secret() -> None:
    assert mongodb().config()["mongodb.connection.string"] == "mongodb://db/?replicaSet=rs0"
    assert "mongodb.password" not in mongodb().config()
    assert mongodb(user="u", password=REFERENCE).config()["mongodb.password"] == REFERENCE


@pytest.mark.parametrize(
    "changes",
    [
        {"connection_string": "mongodb://u:sentinel@db"},
        {"connection_string": "sentinel"},
        {"password": "sentinel"},
    ],
)
def test_a_literal_secret_of_mongodb_is_refused_and_not_repeated(changes: dict[str, str]) -> None:
    with pytest.raises(LiteralSecret) as refused:
        mongodb(**changes)

    assert "sentinel" not in str(refused.value)
    assert "sentinel" not in repr(mongodb(**changes, allow_literal_secrets=True))


@pytest.mark.parametrize(
    ("declare", "changes", "place"),
    [
        (mysql, {"history_topic": "a b"}, "history_topic"),
        (mysql, {"tables": ()}, "tables"),
        (mysql, {"signal_table": "signals"}, "signal_table"),
        (sqlserver, {"databases": ("a b",)}, "databases"),
        (sqlserver, {"databases": ()}, "databases"),
        (sqlserver, {"signal_table": "shop.signals"}, "signal_table"),
        (mongodb, {"collections": ("items",)}, "collections"),
        (mongodb, {"signal_table": "signals"}, "signal_table"),
    ],
)
def test_what_is_refused_has_its_field_as_its_place(declare: Any, changes: dict[str, Any], place: str) -> None:
    with pytest.raises(FactfoldError) as refused:
        declare(**changes)

    assert refused.value.place == place


def test_the_topic_of_definitions_may_be_longer_than_a_prefix() -> None:
    assert mysql(topic_prefix="x" * 60).history_topic == f"{'x' * 60}.schema-history"


def test_settings_of_drivers_are_read_where_there_is_a_driver_to_set() -> None:
    for declare in (postgres, mysql, mariadb, sqlserver):
        assert declare(extra={"driver.socketTimeout": "1"}).config()["driver.socketTimeout"] == "1"
    for declare in (mongodb, mirror):
        with pytest.raises(InvalidConnector, match="a setting that is not read"):
            declare(extra={"driver.socketTimeout": "1"})


@pytest.mark.parametrize("declare", ELSEWHERE)
def test_no_source_is_looked_into_that_nobody_knows_how_to_look_into(declare: Any) -> None:
    with pytest.raises(InvalidConnector, match="looks into PostgreSQL only") as refused:
        declare().check_source(object())

    assert "without source" in refused.value.remedy


@pytest.mark.parametrize(
    ("declare", "changes"),
    [
        (mysql, {"tables": ("items",)}),
        (mysql, {"tables": ("shop.a,shop.b",)}),
        (mysql, {"history_topic": "a b"}),
        (sqlserver, {"databases": ("a-b",)}),
        (sqlserver, {"signal_table": "dbo.signals"}),
        (mongodb, {"collections": ("items",)}),
        (mongodb, {"signal_table": "signals"}),
    ],
)
def test_names_out_of_their_rules_are_refused(declare: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidIdentifier):
        declare(**changes)


@pytest.mark.parametrize(
    ("declare", "changes"),
    [
        (mysql, {"tables": ()}),
        (mysql, {"server_id": -1}),
        (sqlserver, {"databases": ()}),
        (mongodb, {"collections": ()}),
        (mongodb, {"extra": {"captur.mode": "x"}}),
        (mysql, {"extra": {"database.server.id": "1"}}),
    ],
)
def test_declarations_that_cannot_work_are_refused(declare: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidConnector):
        declare(**changes)


@pytest.mark.parametrize(
    ("offset", "streamed"),
    [
        ({"lsn": 2, "snapshot": "INITIAL", "snapshot_completed": True}, False),
        ({"lsn": 2, "lsn_proc": 2}, True),
        ({"file": "binlog.1", "pos": 4, "snapshot": "INITIAL"}, False),
        ({"file": "binlog.1", "pos": 4, "gtids": "a:1-5"}, True),
        ({"commit_lsn": "0:1:2", "snapshot": "INITIAL", "snapshot_completed": True}, False),
        ({"commit_lsn": "0:1:2", "change_lsn": "0:1:1", "event_serial_no": 1}, True),
        ({"sec": 1, "ord": 2, "initsync": True}, False),
        ({"sec": 1, "ord": 2, "resume_token": "82"}, True),
        ({"offset": 0}, True),
        ({}, False),
    ],
)
def test_an_offset_tells_whether_it_is_of_the_stream_of_changes(offset: dict[str, Any], streamed: bool) -> None:
    assert SourceOffset({}, offset).streamed is streamed


def test_a_source_of_postgresql_is_named_as_before() -> None:
    assert postgres().topics == ("shop.public.items",)
