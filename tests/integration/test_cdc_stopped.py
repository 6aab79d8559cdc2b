"""A row that no request takes and a TRUNCATE stop a connector: each is named, and its remedy lets it go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import cdc
from cdc import ConnectClient, Severity
from cdc.connect.failures import remedy_for
from cdc.connect.status import FAILED
from eventstore.settings import Settings
from eventstore.topics import TopicRecord
from tests.waiting import wait_until

INSERTED = "INSERT INTO items SELECT {id}, string_agg(md5(i::text), '') FROM generate_series(1, {size} / 32) i"


def test_a_row_that_stops_its_connector_is_named_with_what_lets_it_through(
    connect: ConnectClient,
    captured: Callable[[], Any],
    records_of: Callable[..., list[TopicRecord]],
    settings: Settings,
) -> None:
    shop = captured()
    shop.run("CREATE TABLE items (id int PRIMARY KEY, name text)", "CREATE TABLE others (id int PRIMARY KEY)")
    source = shop.prepared(shop.source(tables=("public.items", "public.others")))
    cdc.apply_connector(connect, source, source=shop.engine)
    shop.run("INSERT INTO items VALUES (1, 'nail')")
    records_of(source.topics[0], count=1)

    _limit(settings, source.topics[0], "100000")
    shop.run(INSERTED.format(id=2, size=200_000))
    first, search, _, remedy = _advice(connect, source)
    assert first == "a row of one of public.items, public.others is larger than its topic takes"
    assert shop.rows(search.removeprefix("find it: "))[0][1].startswith("(2,")
    assert remedy == "remedy: raise max.message.bytes of the topic, then factfold cdc apply"
    _limit(settings, source.topics[0], "1000000")
    cdc.apply_connector(connect, source, source=shop.engine)
    assert len(records_of(source.topics[0], count=2)) == 2

    shop.run(INSERTED.format(id=3, size=20_000_000))
    first, *_, remedy = _advice(connect, source)
    assert first.endswith("bytes as a record, and max.request.size is 16,777,216")
    assert "producer.max.request.size in a worker" in remedy
    found = cdc.diagnose_connector(source, source=shop.engine, client=connect)
    assert [one.remedy.startswith(first) for one in found if one.severity is Severity.ERROR] == [True]


def _advice(connect: ConnectClient, source: Any) -> tuple[str, ...]:
    wait_until(lambda: connect.status(source.name).failure, what="the failure")
    return cdc.connector_health(connect, source)[0].advice


def _limit(settings: Settings, topic: str, size: str) -> None:
    entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(settings.kafka.librdkafka())
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def test_a_connector_stops_at_a_truncate_and_goes_on_where_it_is_told_to_skip_it(
    connect: ConnectClient, captured: Callable[[], Any], records_of: Callable[..., list[TopicRecord]]
) -> None:
    shop = captured()
    shop.run("CREATE TABLE items (id int PRIMARY KEY, name text)", "INSERT INTO items VALUES (1, 'nail')")
    tables = {"tables": ("public.items",)}
    stopping = shop.prepared(shop.source(**tables))
    cdc.apply_connector(connect, stopping, source=shop.engine)
    records_of(stopping.topics[0], count=1)

    shop.run("TRUNCATE items", "INSERT INTO items VALUES (2, 'screw')")
    wait_until(lambda: connect.status(stopping.name).failure is not None, what="the connector fails")

    failed = connect.status(stopping.name)
    assert failed.summary().endswith(FAILED)
    assert "TRUNCATE" in remedy_for(str(failed.failure))
    cdc.apply_connector(connect, shop.source(**tables, truncates="skip"), source=shop.engine)
    keys = [record.key for record in records_of(stopping.topics[0], count=2)]
    assert keys == [b'{"id":1}', b'{"id":2}']


def test_a_publication_that_leaves_truncates_out_is_mended_for_a_connector_that_stops_at_them(
    captured: Callable[[], Any],
) -> None:
    shop = captured()
    shop.run("CREATE TABLE items (id int PRIMARY KEY)")
    skipping = shop.prepared(shop.source(tables=("public.items",), truncates="skip"))
    truncates = f"SELECT pubtruncate FROM pg_publication WHERE pubname = '{skipping.publication}'"
    assert shop.rows(truncates) == [(False,)]
    shop.prepared(shop.source(tables=("public.items",)))
    assert shop.rows(truncates) == [(True,)]
