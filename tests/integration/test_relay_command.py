"""`factfold relay`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import sys

import pytest

from factfold.cli.entry import main
from tests.crates import crate_store, fill, topic_of


@pytest.fixture
def store(database):
    store = crate_store(database())
    fill(store, 1, 2, times=3)
    yield store
    store.close()


@pytest.fixture
def relay(stack, store, monkeypatch, capsys):
    """Run ``factfold relay …`` in this process; returns exit code, output and what was shown as the error."""
    monkeypatch.setenv("FACTFOLD_STORE_URL", store.engine.url.render_as_string(hide_password=False))
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", stack.info.bootstrap_servers)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["factfold", "relay", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def test_run_says_that_it_leads_and_what_it_has_published(relay):
    code, out, _ = relay("run", "--once", "--json")
    assert code == 0
    leading, report = map(json.loads, out.splitlines())
    assert leading == {"state": "leading"}
    assert (report["events"], report["transactions"]) == (6, 1)
    code, out, err = relay("run", "--once")
    assert (code, err) == (0, "leading\n")
    assert out == "0 events, 0 schemas, 0 transactions\n"


def test_status_says_what_waits_and_who_publishes(relay, store):
    code, out, _ = relay("status", "--json")
    assert code == 3
    found = json.loads(out)
    assert found["leader"] is None
    (crate,) = found["categories"]
    assert (crate["category"], crate["topic"], crate["waiting"]) == ("crate", topic_of(store), 6)
    assert crate["seconds"] > 0
    relay("run", "--once")
    code, out, _ = relay("status")
    assert out == f"nobody publishes\n{topic_of(store)}: 0 events wait, 0.0 s\n"


def test_a_store_that_cannot_be_relayed_is_told_with_a_remedy(relay, monkeypatch):
    code, _, err = relay("run", "--store-url", "sqlite://")
    assert code == 1
    assert "there is no relay for sqlite" in err
    assert "remedy: " in err
    code, _, err = relay("status", "--store-url", "postgresql://someone:sentinel@127.0.0.1:1/shop")
    assert code == 1
    assert "does not answer" in err
    assert "sentinel" not in err
