"""Connectors applied, changed, broken and removed on a real Kafka Connect; the command line over the same."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cdc import (
    ConnectClient,
    apply_connector,
    delete_connector,
    drop_slot,
    plan_connectors,
    restart_connector,
    set_connector_state,
    write_secrets,
)
from cdc.connect.status import STOPPED
from cdc.errors import ConnectorFailed, ConnectorTimeout, ConnectRejected, SourceNotReady
from cdc.operating.control import if_known
from cdc.operating.planning import Plan
from cdc.transforms import Custom
from factfold.stack import LocalStack
from tests.commands import factfold
from tests.connectors import HEARTBEATS, heartbeats, require_shipped_list
from tests.rows import each_row
from tests.unit.cdc.declared import checkpoint, heartbeat, mirror, postgres
from tests.waiting import wait_until

CAST = "org.apache.kafka.connect.transforms.Cast$Value"


@pytest.fixture(scope="module")
def shop(captured: Callable[[], Any]) -> Any:
    return captured("CREATE TABLE items (id int PRIMARY KEY, name text)", "INSERT INTO items VALUES (1, 'nail')")


@pytest.fixture
def connector(shop: Any) -> Iterator[Any]:
    """A prepared connector on the shop's items, not yet applied; gone with its offsets afterwards."""
    yield shop.prepared(shop.source(tables=("public.items",)))
    delete_connector(shop.client, shop.name, forget=True)
    for slot in shop.slots():
        drop_slot(shop.engine, slot)


@pytest.fixture(scope="module")
def other(captured: Callable[[], Any]) -> Any:
    return captured("CREATE TABLE items (id int PRIMARY KEY, name text)")


@pytest.fixture(scope="module")
def running(connect: ConnectClient, other: Any) -> Any:
    """A connector on a database of its own, applied once; tests leave it running as declared."""
    declared = other.prepared(other.source(tables=("public.items",)))
    assert apply_connector(connect, declared, source=other.engine).created
    return declared


def test_applying_again_is_a_no_op(connect, other, running):
    before = connect.status(other.name)

    applied = apply_connector(connect, running, source=other.engine)

    assert applied.was_no_op
    assert applied.status == before
    assert before.running


def planned(connect: ConnectClient, declared: Any, source: Any) -> Plan:
    (found,) = [one for one in plan_connectors(connect, [declared], source=source) if one.name == declared.name]
    return found


def test_a_changed_declaration_replaces_the_running_one(connect, other, running):
    other.run("CREATE TABLE parts (id int PRIMARY KEY)", "INSERT INTO parts VALUES (1)")
    changed = other.source(tables=("public.items", "public.parts"), extra={"max.batch.size": 512})
    looked = planned(connect, changed, other.engine)
    assert "leaves out public.parts" in looked.problems[0]
    assert planned(connect, other.prepared(changed), other.engine).problems == ()

    applied = apply_connector(connect, changed, source=other.engine)

    assert (applied.created, applied.changed, applied.status.running) == (False, True, True)
    assert connect.config(other.name)["max.batch.size"] == "512"
    assert applied.notes == looked.notes
    assert "rows already in public.parts are not read" in applied.notes[0]
    again = apply_connector(connect, other.prepared(running), source=other.engine)
    assert (again.changed, again.notes) == (True, ())


def test_a_connector_that_failed_is_brought_back_by_applying_it_again(connect, other, running):
    other.run(f"DROP PUBLICATION {running.publication}")
    connect.restart(other.name)
    wait_until(lambda: connect.status(other.name).failure, what="the failure")
    looked = planned(connect, running, other.engine)
    assert (looked.action, looked.state) == ("restart", "RUNNING, task 0 FAILED")
    assert "does not exist" in looked.problems[0]

    applied = apply_connector(connect, other.prepared(running), source=other.engine)

    assert (applied.restarted, applied.changed, applied.resumed) == (True, False, False)
    assert applied.status.running
    assert planned(connect, running, other.engine).action == "keep"


def test_a_stopped_connector_is_resumed(connect, other, running):
    connect.stop(other.name)
    wait_until(lambda: connect.status(other.name).stopped, what="the stop")

    assert apply_connector(connect, running, source=other.engine).resumed


def test_a_restart_ends_with_a_connector_that_streams(connect, other, running):
    assert restart_connector(connect, other.name, source=other.engine).running
    assert restart_connector(connect, other.name).running


def test_bad_input_says_its_cause_and_what_to_do(connect, shop, connector, stack):
    folder = stack.info.secrets_dir
    wrong = write_secrets(folder, f"{shop.name}-wrong", values={"password": "wrong"})["password"]
    absent = f"${{file:{folder}/gone.properties:password}}"
    for changes, cause, remedy in (
        ({"password": wrong}, "password authentication failed for user", "the password behind the connector's"),
        ({"password": absent}, "Could not read properties", "factfold cdc prepare"),
        ({"extra": {"max.batch.size": -1}}, "max.batch.size", "repair the cause"),
        ({"port": 9}, "Connection .* refused", "start the database"),
    ):
        with pytest.raises(ConnectRejected, match=cause) as failure:
            apply_connector(connect, shop.source(tables=("public.items",), **changes))
        assert ("\n" in failure.value.message, remedy in failure.value.remedy) == (False, True)
        assert failure.value.place
    shop.run(f"DROP PUBLICATION {connector.publication}")
    with pytest.raises(SourceNotReady, match=r"publication .* does not exist"):
        apply_connector(connect, connector, source=shop.engine)
    assert shop.name not in connect.connectors()
    assert shop.slots() == []


def test_a_wrong_password_leaves_a_running_connector_as_it_was(connect, other, running, stack):
    wrong = write_secrets(stack.info.secrets_dir, f"{other.name}-wrong", values={"password": "sentinel"})

    with pytest.raises(ConnectRejected):
        apply_connector(connect, other.source(tables=("public.items",), password=wrong["password"]))

    assert apply_connector(connect, running, source=other.engine).was_no_op


def test_a_new_connector_that_fails_takes_the_slot_with_it_that_it_made(connect, shop, connector):
    # A letter is no number: the first row of the initial snapshot is one too many, and by then there is a slot.
    broken = Custom(class_name=CAST, options={"spec": "op:int8"})
    declared = shop.source(tables=("public.items",), transforms=(broken,))

    with pytest.raises(ConnectorFailed, match="NumberFormatException") as failure:
        apply_connector(connect, declared, source=shop.engine)

    assert shop.slots() == []
    assert "pg_drop_replication_slot" not in failure.value.remedy


def test_a_connector_that_fails_at_once_is_removed_so_that_no_change_is_missed_later(
    connect, shop, connector, records_of
):
    shop.run(f"DROP PUBLICATION {connector.publication}")

    with pytest.raises(ConnectorFailed, match="Publication autocreation is disabled") as failure:
        apply_connector(connect, connector)

    assert 1 <= len(failure.value.trace) <= 5
    assert shop.name not in connect.connectors()
    assert f"pg_drop_replication_slot('{connector.slot}')" in failure.value.remedy
    shop.run("INSERT INTO items VALUES (77, 'between')")
    apply_connector(connect, shop.prepared(connector), source=shop.engine)
    topic = connector.topic("public.items")
    wait_until(
        lambda: b'{"id":77}' in [record.key for record in records_of(topic, count=1)],
        what="the row written between the two attempts",
    )


def test_a_lost_slot_fails_the_connector_and_does_not_skip_what_it_missed(connect, shop, connector):
    apply_connector(connect, connector, source=shop.engine)
    delete_connector(connect, shop.name)
    drop_slot(shop.engine, connector.slot)

    with pytest.raises(ConnectorFailed, match="no longer available on the server") as failure:
        apply_connector(connect, connector, source=shop.engine)

    assert "--forget" in failure.value.remedy
    assert delete_connector(connect, shop.name, forget=True)
    assert apply_connector(connect, connector, source=shop.engine).created
    assert len(failure.value.message) < 400


def test_the_slot_follows_the_log_while_only_other_tables_are_written(connect, other, running):
    other.run("CREATE TABLE other AS SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
    written = other.rows("SELECT pg_current_wal_lsn()::text")[0][0]

    query = f"SELECT confirmed_flush_lsn >= '{written}' FROM pg_replication_slots WHERE slot_name = '{running.slot}'"
    wait_until(lambda: other.rows(query) == [(True,)], what="the advance of the slot")


def test_a_deadline_that_passes_says_what_was_seen_last(connect, shop, connector):
    shop.run(f"REVOKE SELECT ON items FROM {connector.user}")

    with pytest.raises(ConnectorTimeout, match="not streaming after 3 s: RUNNING, task 0 RUNNING"):
        apply_connector(connect, connector, timeout=3)


def test_the_command_line_applies_shows_and_deletes(shop, connector, cdc_of):
    run = cdc_of(shop, connectors=lambda: [connector])
    applied, shown = run("apply", "declared_here:connectors", "--json"), run("status", shop.name)
    elsewhere = shop.engine.url.set(database="elsewhere").render_as_string(hide_password=False)
    restarted = run("restart", shop.name, "--source-url", elsewhere)
    with pytest.raises(SourceNotReady, match="cannot be dropped"):
        run("delete", shop.name, "--drop-slot", "--source-url", elsewhere)
    deleted = run("delete", shop.name, "--forget", "--drop-slot")
    assert json.loads(applied.stdout)["did"] == ["created"]
    assert shown.stdout.splitlines()[1].split()[:4] == [shop.name, "RUNNING", "0", "RUNNING"]
    assert restarted.stdout.startswith(f"{shop.name}  restarted  RUNNING, task 0 RUNNING\n    note: its source was not")
    assert deleted.stdout == f"{shop.name}  deleted  slot {connector.slot} dropped\n"
    assert shop.slots() == []
    assert json.loads(run("delete", shop.name, "--json").stdout)["deleted"] is False


# ---- The client against a live Connect worker, and its commands, with MirrorMaker's heartbeats. They need no database


@pytest.fixture
def config(stack: LocalStack) -> dict[str, str]:
    return heartbeats(stack.info.bootstrap_servers)


@pytest.fixture
def name(connect: ConnectClient, config: dict[str, str]) -> Iterator[str]:
    """A connector that was made PAUSED and runs."""
    name = f"hearts-{uuid.uuid4().hex[:8]}"
    connect.create(name, config, state="PAUSED")
    wait_until(lambda: (status := if_known(connect.status, name)) and status.state == "PAUSED", what="the pause")
    connect.resume(name)
    wait_until(lambda: connect.status(name).running, what="its task")
    yield name
    connect.delete(name)


def test_a_worker_says_who_it_is_and_what_it_can_load(connect):
    assert connect.health().healthy
    assert connect.version()
    assert HEARTBEATS in connect.plugins()


def test_a_connector_is_seen_whole_and_with_its_tasks(connect, name, config):
    stored, status = connect.overview()[name]
    assert (stored, status.running) == (connect.config(name), True)
    assert stored == {"name": name, **config}


def test_offsets_are_read_and_forgotten(connect, name):
    wait_until(lambda: connect.offsets(name), what="an offset")
    connect.stop(name)
    wait_until(lambda: connect.status(name).stopped, what="the stop")
    connect.delete_offsets(name)
    assert connect.offsets(name) == ()


def test_a_restart_says_which_states_it_leads_to(connect, name):
    assert connect.restart(name, only_failed=True) == connect.status(name)
    will_be = connect.restart(name)
    assert will_be is not None
    assert {will_be.state, *(task.state for task in will_be.tasks)} == {"RESTARTING"}
    wait_until(lambda: connect.status(name).running, what="its tasks again")


def test_commands_rest_stop_and_start_a_connector_and_forget_its_offsets(connect, name, monkeypatch):
    monkeypatch.setenv("FACTFOLD_CONNECT_URL", connect.url)

    def run(*words: str) -> str:
        return factfold("cdc", *words, catch_exceptions=False).stdout

    assert run("pause", name) == f"{name}  PAUSED, task 0 PAUSED\n"
    assert run("resume", name) == f"{name}  RUNNING, task 0 RUNNING\n"
    wait_until(lambda: json.loads(run("offsets", "show", name, "--json")), what="an offset")
    assert "left alone" in run("restart", name, "--failed")
    assert run("stop", name) == f"{name}  STOPPED, no task\n"
    told = json.loads(run("offsets", "reset", name, "--yes", "--json"))
    assert told == {"name": name, "state": "STOPPED", "offsets": []}
    assert json.loads(run("offsets", "show", name, "--json")) == []
    assert json.loads(run("resume", name, "--json"))["state"] == "RUNNING"


def test_a_stop_right_after_a_change_of_configuration_is_followed(connect, name, config):
    for seconds in range(2, 5):
        connect.put_config(name, {**config, "emit.heartbeats.interval.seconds": str(seconds)})
        assert set_connector_state(connect, name, STOPPED).stopped
        connect.put_config(name, config)
        connect.resume(name)


@each_row("declare", [postgres, mirror, checkpoint, heartbeat])
def test_a_shipped_list_is_what_the_plug_in_publishes(connect, declare):
    require_shipped_list(connect, declare())


@each_row("declare", [mirror, checkpoint, heartbeat])
def test_a_worker_finds_nothing_wrong_with_a_declaration(connect, declare):
    declared = declare()
    assert connect.validate({"name": declared.name, **declared.config()}) == ()


def test_a_mirror_that_reads_uncommitted_records_cannot_be_exactly_once(connect):
    config = {"name": "shop", **mirror().config(), "source.consumer.isolation.level": "read_uncommitted"}
    assert [problem.key for problem in connect.validate(config)] == ["exactly.once.support"]
