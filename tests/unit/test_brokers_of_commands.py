"""A command without a setting for Kafka says so at once, instead of trying an address that nobody gave."""

from __future__ import annotations

import time

import pytest

from eventstore.errors import BrokerUnreachable, DeclarationError
from factfold.cli.running import reached_settings
from projections.errors import TableStoreUnavailable
from tests.commands import factfold

COMMANDS = [
    ("subscriptions", "run", "tests.integration.booking:book"),
    ("branches", "run", "tests.integration.payment_branches:payments", "--checkpoints", "here"),
    ("dlq", "list", "payment", "books"),
    ("relay", "run", "--store-url", "sqlite:///shop.db"),
    ("processes", "run", "tests.unit.eventstore.fulfilment:Fulfilment", "--kafka", "--store-url", "sqlite:///shop.db"),
    ("archive", "run", "order", "--archive", "delta:here"),
    (
        "projections",
        "rebuild",
        "sample_app.views:shop_views",
        "--views-url",
        "postgresql+psycopg://nobody@127.0.0.1:1/x",
    ),
]


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    for name in ("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "FACTFOLD_KAFKA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("factfold.cli.running._DEADLINE_SECONDS", 0.5)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_a_command_ends_at_once_and_names_the_setting(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    failure = factfold(*command).exception
    assert isinstance(failure, BrokerUnreachable)
    assert failure.message == "no setting names a Kafka broker, and localhost:9092 has none"
    assert "bootstrap_servers of [kafka] in factfold.toml" in failure.remedy
    assert "Without Kafka, " in failure.remedy
    assert time.monotonic() - began < 20


def test_a_named_broker_is_not_asked_before_the_command_needs_it(monkeypatch):
    """It may start later than the service, which then waits for it."""
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert reached_settings(without_kafka="").kafka.bootstrap_servers == "127.0.0.1:1"


def test_a_misspelt_file_of_views_is_not_created(tmp_path):
    missing = tmp_path / "shpo.db"
    done = factfold("projections", "rebuild", "sample_app.views:shop_views", "--views-url", f"sqlite:///{missing}")
    assert isinstance(done.exception, TableStoreUnavailable)
    assert "factfold store migrate" in done.exception.remedy
    assert not missing.exists()


def test_a_missing_option_that_is_a_setting_names_the_setting(monkeypatch):
    monkeypatch.delenv("FACTFOLD_VIEWS_URL", raising=False)
    failure = factfold("projections", "status").exception
    assert isinstance(failure, DeclarationError)
    assert failure.message == "the option --views-url is missing"
    assert failure.remedy == "give it, or set FACTFOLD_VIEWS_URL (views_url in factfold.toml)"
