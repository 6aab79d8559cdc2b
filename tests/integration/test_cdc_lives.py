"""A connector whose source has become another: refused, then declared as another life, whose rows win."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text

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
from cdc.changes.transactions import SourceTransactions, decode_marker
from cdc.connect.status import STOPPED
from cdc.errors import SourceNotReady
from eventstore.kafka.admin import OffsetReader
from eventstore.settings import Settings
from eventstore.topics import TopicRecord
from tests.connectors import rest

ITEMS = Table("items", MetaData(), Column("id", Integer, primary_key=True), Column("name", Text))


def far_ahead(client: ConnectClient, name: str) -> None:
    """As if the connector had read the log of a server that had written a terabyte more."""
    set_connector_state(client, name, STOPPED)
    (at,) = client.offsets(name)
    places = {key: at.offset[key] + (1 << 40) for key in ("lsn", "lsn_proc", "lsn_commit") if key in at.offset}
    offsets = [{"partition": dict(at.partition), "offset": {**at.offset, **places}}]
    rest(client, "PATCH", f"/connectors/{name}/offsets", json={"offsets": offsets})


def test_another_server_is_refused_until_it_is_declared_another_life_and_then_its_rows_win(
    connect: ConnectClient,
    captured: Callable[[], Any],
    records_of: Callable[..., list[TopicRecord]],
    settings: Settings,
) -> None:
    shop = captured()
    shop.run("CREATE TABLE items (id int PRIMARY KEY, name text)")
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
    marks = [decode_marker(r.value, place=r.place) for r in records_of(first.transaction_topic, count=4)]
    lives = [mark.epoch for mark in marks]
    assert lives == sorted(lives)
    assert set(lives) == {0, 1}
    with SourceTransactions(settings, shop.name, first.topics) as transactions, OffsetReader(settings) as offsets:
        whole = transactions.latest(offsets.beginning_offsets(first.topics))
        assert whole == offsets.end_offsets(first.topics)
