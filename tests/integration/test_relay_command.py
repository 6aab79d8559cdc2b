"""`factfold relay`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from functools import partial

import pytest

from eventstore.errors import StoreUnavailable, UnsupportedBackend
from tests.commands import factfold
from tests.crates import crate_store, fill, topic_of


@pytest.fixture
def store(database):
    store = crate_store(database())
    fill(store, 1, 2, times=3)
    yield store
    store.close()


@pytest.fixture
def relay(stack, store, monkeypatch):
    """Run ``factfold relay …`` in this process."""
    monkeypatch.setenv("FACTFOLD_STORE_URL", store.engine.url.render_as_string(hide_password=False))
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", stack.info.bootstrap_servers)
    return partial(factfold, "relay")


def test_status_and_run_say_what_waits_who_leads_and_what_was_published(relay, store):
    found = relay("status", "--json")
    told = json.loads(found.stdout)
    assert (found.exit_code, told["leader"]) == (3, None)
    (crate,) = told["categories"]
    assert (crate["category"], crate["topic"], crate["waiting"]) == ("crate", topic_of(store), 6)
    assert crate["seconds"] > 0
    leading, report = map(json.loads, relay("run", "--once", "--json").stdout.splitlines())
    assert leading == {"state": "leading"}
    assert (report["events"], report["transactions"]) == (6, 1)
    again = relay("run", "--once")
    assert (again.exit_code, again.stderr, again.stdout) == (0, "leading\n", "0 events, 0 schemas, 0 transactions\n")
    assert relay("status").stdout == f"nobody publishes\n{topic_of(store)}: 0 events wait, 0.0 s\n"


def test_a_store_that_cannot_be_relayed_is_refused(relay):
    with pytest.raises(UnsupportedBackend, match="no relay for sqlite"):
        relay("run", "--store-url", "sqlite://", catch_exceptions=False)
    away = "postgresql://someone:sentinel@127.0.0.1:1/shop"
    with pytest.raises(StoreUnavailable, match="does not answer") as refused:
        relay("status", "--store-url", away, catch_exceptions=False)
    assert "sentinel" not in str(refused.value)
