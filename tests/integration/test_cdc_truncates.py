"""A captured table that is emptied by TRUNCATE: the connector stops, or goes on and leaves the rows to a comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc import ConnectClient, apply, statuses
from cdc.connect.failures import remedy_for
from cdc.connect.status import FAILED, ConnectorStatus
from eventstore.topics import TopicRecord
from tests.waiting import wait_until


def status_of(connect: ConnectClient, name: str) -> ConnectorStatus:
    return next(one for one in statuses(connect) if one.name == name)


def test_a_connector_stops_at_a_truncate_and_goes_on_where_it_is_told_to_skip_it(
    connect: ConnectClient, captured: Callable[[], Any], records_of: Callable[..., list[TopicRecord]]
) -> None:
    shop = captured()
    shop.run("CREATE TABLE items (id int PRIMARY KEY, name text)", "INSERT INTO items VALUES (1, 'nail')")
    tables = {"tables": ("public.items",)}
    stopping = shop.prepared(shop.source(**tables))
    apply(connect, stopping, source=shop.engine)
    records_of(stopping.topics[0], count=1)

    shop.run("TRUNCATE items", "INSERT INTO items VALUES (2, 'screw')")
    wait_until(lambda: status_of(connect, stopping.name).failure is not None, what="the connector fails")

    failed = status_of(connect, stopping.name)
    assert failed.summary().endswith(FAILED)
    assert "TRUNCATE" in remedy_for(str(failed.failure))
    apply(connect, shop.source(**tables, truncates="skip"), source=shop.engine)
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
