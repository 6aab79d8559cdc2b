"""A store that was restored elsewhere hides its events until it is renumbered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, text
from typer.testing import CliRunner, Result

from eventstore import ANY, Aggregate, SqlEventStore, event, subscription
from eventstore.errors import StoreNotPrepared
from factfold.cli.entry import application
from tests.errors import raises
from tests.unit.eventstore.handlers import deliver_stored

AHEAD = 5_000_000_000


class Remark(Aggregate):
    @event
    class Written:
        number: int


def remark(store: SqlEventStore, *numbers: int) -> None:
    for number in numbers:
        store.append(f"note-{number % 3}", [Remark.Written(number=number)], expected=ANY)


def numbers(store: SqlEventStore, **where: Any) -> list[int]:
    return [e.data["number"] for e in store.read_all(**where)]


@pytest.fixture
def store(database: Callable[[], str]) -> Iterator[SqlEventStore]:
    with SqlEventStore(database()) as store:
        store.create_tables()
        remark(store, 0, 1, 2, 3)
        yield store


@pytest.fixture
def restored(store: SqlEventStore) -> SqlEventStore:
    """As a dump of a cluster that had counted to five billion leaves it."""
    with store.engine.begin() as connection:
        connection.execute(text("update events set order_xid = order_xid + :ahead"), {"ahead": AHEAD})
    return store


def command(store: SqlEventStore, *words: str) -> Result:
    url = store.engine.url.render_as_string(hide_password=False)
    return CliRunner().invoke(application(), words, env={"FACTFOLD_STORE_URL": url})


def finding(store: SqlEventStore) -> dict[str, Any]:
    found = {one["check"]: one for one in json.loads(command(store, "doctor", "--json").output)}
    return dict(found["store"])


def test_a_store_that_was_never_elsewhere_is_well(store):
    assert store.ahead_of_cluster() == store.renumber() == 0
    assert finding(store)["severity"] == "ok"
    assert command(store, "store", "renumber").output == "nothing to do\n"


def test_the_events_of_a_restored_store_are_hidden_and_doctor_says_so(restored):
    assert numbers(restored) == []
    assert restored.ahead_of_cluster() > AHEAD // 2
    found = finding(restored)
    assert found["severity"] == "error"
    assert "transactions ahead of this cluster" in found["result"]
    assert found["remedy"] == "factfold store renumber"


def test_a_renumbered_store_is_read_in_its_order_and_goes_on(restored):
    remark(restored, 6, 7)
    assert command(restored, "store", "renumber").output.startswith("renumbered by ")
    assert numbers(restored) == [0, 1, 2, 3, 6, 7]
    remark(restored, 9, 10, 11)
    assert numbers(restored) == [0, 1, 2, 3, 6, 7, 9, 10, 11]
    assert finding(restored)["severity"] == "ok"
    assert [e.version for e in restored.read_all() if e.stream == "note-0"] == [0, 1, 2, 3]


def test_a_subscription_goes_on_behind_what_it_had_read(store):
    seen: list[int] = []

    @subscription("note", group="readers")
    def read(event: Remark.Written, tx: Connection) -> None:
        seen.append(event.number)

    deliver_stored(store, read, category="note")
    assert seen == [0, 1, 2, 3]
    with store.engine.begin() as connection:
        for table in ("events", "factfold_checkpoints"):
            connection.execute(text(f"update {table} set order_xid = order_xid + :ahead"), {"ahead": AHEAD})
    remark(store, 4)
    store.renumber()
    remark(store, 5)
    deliver_stored(store, read, category="note")
    assert seen == [0, 1, 2, 3, 4, 5]


def test_an_outbox_that_is_being_read_is_not_updated_unasked(restored):
    slot = "renumber_test"
    with restored.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("select pg_create_logical_replication_slot(:slot, 'pgoutput')"), {"slot": slot})
        try:
            with raises(StoreNotPrepared, code="store-restored", match="'renumber_test' would publish this as updates"):
                restored.renumber()
            assert restored.ahead_of_cluster()
            assert restored.renumber(published=True)
        finally:
            connection.execute(text("select pg_drop_replication_slot(:slot)"), {"slot": slot})
    assert numbers(restored) == [0, 1, 2, 3]


# ---- Tenants in one database, and their events on the road to Kafka
