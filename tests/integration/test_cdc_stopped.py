"""A row that no request takes and a TRUNCATE stop a connector: each is named, and its remedy lets it go on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from sqlalchemy import Column, Integer, MetaData, Table, Text

import cdc
from cdc import (
    ChangeDecoder,
    ConnectClient,
    Severity,
    apply_connector,
    diagnose_connector,
    drop_slot,
    reset_offsets,
    set_connector_state,
)
from cdc.changes.transactions import SourceTransactions
from cdc.connect.failures import remedy_for
from cdc.connect.status import FAILED, STOPPED
from cdc.errors import SourceNotReady
from eventstore.kafka.admin import OffsetReader
from eventstore.settings import Settings
from tests.connectors import rest
from tests.waiting import wait_until

INSERTED = "INSERT INTO items SELECT {id}, string_agg(md5(i::text), '') FROM generate_series(1, {size} / 32) i"


def test_a_row_that_stops_its_connector_is_named_with_what_lets_it_through(connect, captured, records_of, settings):
    shop = captured("CREATE TABLE items (id int PRIMARY KEY, name text)", "CREATE TABLE others (id int PRIMARY KEY)")
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


def test_a_connector_stops_at_a_truncate_and_goes_on_where_it_is_told_to_skip_it(connect, captured, records_of):
    shop = captured("CREATE TABLE items (id int PRIMARY KEY, name text)", "INSERT INTO items VALUES (1, 'nail')")
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


def test_a_publication_that_leaves_truncates_out_is_mended_for_a_connector_that_stops_at_them(captured):
    shop = captured("CREATE TABLE items (id int PRIMARY KEY)")
    skipping = shop.prepared(shop.source(tables=("public.items",), truncates="skip"))
    truncates = f"SELECT pubtruncate FROM pg_publication WHERE pubname = '{skipping.publication}'"
    assert shop.rows(truncates) == [(False,)]
    shop.prepared(shop.source(tables=("public.items",)))
    assert shop.rows(truncates) == [(True,)]


# ---- A connector whose source has become another: refused, then declared as another life, whose rows win


ITEMS = Table("items", MetaData(), Column("id", Integer, primary_key=True), Column("name", Text))


def far_ahead(client: ConnectClient, name: str) -> None:
    """As if the connector had read the log of a server that had written a terabyte more."""
    set_connector_state(client, name, STOPPED)
    (at,) = client.offsets(name)
    places = {key: at.offset[key] + (1 << 40) for key in ("lsn", "lsn_proc", "lsn_commit") if key in at.offset}
    offsets = [{"partition": dict(at.partition), "offset": {**at.offset, **places}}]
    rest(client, "PATCH", f"/connectors/{name}/offsets", json={"offsets": offsets})


def test_another_server_is_refused_until_it_is_declared_another_life_and_then_its_rows_win(
    connect, captured, records_of, settings
):
    shop = captured("CREATE TABLE items (id int PRIMARY KEY, name text)")
    first = shop.prepared(shop.source(tables=("public.items",), transactions=True))
    apply_connector(connect, first, source=shop.engine)
    shop.run("INSERT INTO items VALUES (1, 'nail')")
    records_of(first.topics[0], count=1)
    far_ahead(connect, first.name)

    with pytest.raises(SourceNotReady, match="another server, or a restored one") as refused:
        apply_connector(connect, first, source=shop.engine)
    found = diagnose_connector(first, source=shop.engine, client=connect)

    assert "epoch" in refused.value.remedy
    assert [f.check for f in found if f.severity is Severity.ERROR] == ["life of the source"]
    reset_offsets(connect, first.name)
    drop_slot(shop.engine, first.slot)
    shop.run("UPDATE items SET name = 'screw'")
    apply_connector(connect, shop.source(tables=("public.items",), transactions=True, epoch=1), source=shop.engine)
    decoder = ChangeDecoder(ITEMS)
    changes = [decoder.decode(r.key, r.value, offset=r.offset) for r in records_of(first.topics[0], count=2)]
    newest = max(changes, key=lambda change: change.position)
    assert (newest.position.epoch, newest.position.streamed, newest.after) == (1, False, {"id": 1, "name": "screw"})

    # Its transactions are told apart from those of the life before, though that one's log was further.
    shop.run("INSERT INTO items VALUES (2, 'bolt')")
    records_of(first.topics[0], count=3)
    marks = [json.loads(record.value) for record in records_of(first.transaction_topic, count=4)]
    lives = [int(mark.get("factfold_epoch") or 0) for mark in marks]
    assert lives == sorted(lives)
    assert set(lives) == {0, 1}
    with SourceTransactions(settings, shop.name, first.topics) as transactions, OffsetReader(settings) as offsets:
        whole = transactions.latest(offsets.beginning_offsets(first.topics))
        assert whole == offsets.end_offsets(first.topics)
