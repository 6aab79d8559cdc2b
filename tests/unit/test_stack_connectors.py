"""Connectors brought to a local stack: its PostgreSQL and its secrets, whatever their declaration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from factfold.stack import StackInfo
from factfold.stack.connect import in_stack
from tests.unit.cdc.declared import mysql, outbox, postgres

INFO = StackInfo("here", Path("/stacks/here"), {"postgres": 5433, "kafka": 9, "connect": 8}, "hush", {})


@pytest.mark.parametrize("declare", [postgres, outbox])
def test_host_port_and_secrets_folder_are_the_stacks(declare: object) -> None:
    connector = declare()  # type: ignore[operator]
    config, own = in_stack(connector, INFO).config(), connector.config()
    assert config["database.hostname"] == "127.0.0.1"
    assert config["database.port"] == "5433"
    assert config["database.password"] == "${file:/stacks/here/secrets/shop.properties:password}"
    changed = {key for key in config if config[key] != own[key]}
    # The text in place of a missing value follows from the address.
    assert changed - {"unavailable.value.placeholder", "transforms.unavailable.static.value"} == {
        "database.hostname",
        "database.port",
        "database.password",
    }


def test_a_password_of_another_provider_and_another_database_stay_as_they_are() -> None:
    assert in_stack(postgres(password="${env:PASSWORD}"), INFO).config()["database.password"] == "${env:PASSWORD}"
    assert in_stack(mysql(), INFO) == mysql()
