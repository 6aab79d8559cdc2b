"""What `factfold cdc` says without asking a worker."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from cdc import PostgresSource, grant_statements
from factfold.cli import cdc as command_line

SHOP = PostgresSource(
    name="shop", host="db", database="shop", user="shop_cdc", password="${file:/secrets/shop.properties:password}",
    topic_prefix="shop", tables=("public.customers",),
)  # fmt: skip


def run(*words: str) -> Any:
    return CliRunner().invoke(command_line.app, words, catch_exceptions=False)


def test_the_rights_that_a_source_needs_are_printed_to_be_run_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    declarations = type(sys)("shop_here")
    declarations.sources = [SHOP]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_here", declarations)

    printed = run("grants", "shop_here:sources").stdout

    assert printed.splitlines() == ["-- shop", *(f"{statement};" for statement in grant_statements(SHOP))]
    assert "password" not in printed
    assert json.loads(run("grants", "shop_here:sources", "--json").stdout) == {"shop": list(grant_statements(SHOP))}
