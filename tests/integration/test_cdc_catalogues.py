"""The shipped lists of settings and the declarations, held against what a live worker says of its plug-ins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdc import ConnectClient
from cdc.connectors.catalogue import OF_CONNECT, keys_of, kind_of, text_of
from factfold.cli.cdc import apply as command_line
from tests.unit.cdc.declared import checkpoint, heartbeat, mirror, postgres

ON_THE_WORKER = (postgres, mirror, checkpoint, heartbeat)


@pytest.mark.parametrize("declare", ON_THE_WORKER)
def test_a_shipped_list_is_what_the_plug_in_publishes(connect: ConnectClient, declare: Any) -> None:
    declared = declare()
    published = {key.name: key.type for key in connect.plugin_keys(declared.JAVA_CLASS)}
    of_plug_in = {key: kind for key, kind in published.items() if kind_of(key, keys_of(OF_CONNECT)) is None}

    shipped = [line.split("\t") for line in text_of(declared.CATALOGUE).splitlines()]
    added = next(n for n, row in enumerate(shipped) if row[0].endswith("absent from the list it publishes"))

    assert {row[0]: row[1] for row in shipped[2:added]} == of_plug_in


@pytest.mark.parametrize("declare", [mirror, checkpoint, heartbeat])
def test_a_worker_finds_nothing_wrong_with_a_declaration(connect: ConnectClient, declare: Any) -> None:
    declared = declare()

    assert connect.validate({"name": declared.name, **declared.config()}) == ()


def test_a_mirror_that_reads_uncommitted_records_cannot_be_exactly_once(connect: ConnectClient) -> None:
    config = {"name": "shop", **mirror().config(), "source.consumer.isolation.level": "read_uncommitted"}

    assert [problem.key for problem in connect.validate(config)] == ["exactly.once.support"]


def test_the_command_line_plans_what_a_file_declares(
    connect: ConnectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTFOLD_CONNECT_URL", connect.url)
    file = tmp_path / "connectors.toml"
    file.write_text(
        '[[connector]]\ntype = "mirror-heartbeat"\nname = "from-a-file"\nsource_alias = "a"\ntarget_alias = "b"\n'
        'source_bootstrap_servers = "a:9092"\ntarget_bootstrap_servers = "b:9092"\n',
        encoding="utf-8",
    )

    ran = CliRunner().invoke(command_line.app, ["plan", str(file), "--json"], catch_exceptions=False)

    plans = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [plan["action"] for plan in plans if plan["name"] == "from-a-file"] == ["create"]
