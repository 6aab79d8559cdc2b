"""A rebuild on Kafka and PostgreSQL: killed and resumed, compared, cut over, rolled back, by call and by command.

The same in SQLite: tests/conformance. A test of readers during a rebuild: tests/faults/test_rebuild_serving.py.
"""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from factfold.cli.entry import application
from projections import Environment, cut_over, diff, open_runner, rebuild, rollback, verify
from projections.errors import DefinitionChanged, ProjectionError
from projections.lifecycle import building
from projections.spark.live.incremental import LiveBatches
from projections.spark.views.view_functions import view_columns
from projections.stores.generations import drop
from tests.errors import raises
from tests.integration import rebuild_watching
from tests.integration.log_writer import LogWriter
from tests.integration.rebuild_watching import Killed, growing_group, killed_at, opened, rows_of
from tests.integration.ticket_history import TicketHistory, view_rows
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group


@pytest.fixture
def writer(env):
    return LogWriter(env.log.settings, Ticket, CUSTOMERS, REGIONS)


def statuses(env, group):
    return {state.run.generation: state.status for state in env.store.states(group.name)}


def test_a_rebuild_that_is_killed_again_and_again_goes_on_and_equals_the_oracle(env, writer, monkeypatch):
    """In chunks of 70 records; every step is begun by a process that does not come to its end."""
    group, history, loads = ticket_group(writer), TicketHistory(writer, 21), []
    writer.send([record for _ in range(120) for record in history.step()])
    monkeypatch.setattr(building, "CHUNK_RECORDS", 70)
    load_state, apply = building.load_state, LiveBatches.apply

    def half_loaded(environment, frame, layout, *, rows):
        loads.append(layout.state.name)
        written = load_state(environment, frame, layout, rows=rows)
        if layout.state.name.endswith("customers") and len(loads) <= len(group.tables):
            raise Killed("after the rows of a table, before it is noted")
        return written

    def second_chunk(batches, offsets):
        report = apply(batches, offsets)
        raise Killed(f"after a chunk of {report.records}")

    monkeypatch.setattr(building, "load_state", half_loaded)
    with pytest.raises(Killed):
        rebuild(env, group)
    with monkeypatch.context() as patched:
        patched.setattr(LiveBatches, "apply", second_chunk)
        with pytest.raises(Killed):
            rebuild(env, group)
    for step in ("views", "index", "serve"):
        with pytest.raises(Killed):
            rebuild(env, group, on_progress=killed_at(step))
    writer.send([record for _ in range(20) for record in history.step()])
    report = rebuild(env, group)
    assert (report.generation, report.resumed, report.serves) == (1, True, True)
    # Each table once, and the one that was half loaded again.
    assert len(loads) == len(group.tables) + 1
    assert view_rows(env, "ticket_chain") == history.expected_chain()
    assert view_rows(env, "ticket_left") == history.expected_left()
    assert all(verdict.equal for verdict in verify(env, group).values())


def test_a_changed_view_is_built_beside_compared_switched_to_and_taken_back(env, writer):
    first = growing_group(writer)
    writer.send(opened(writer, 0, 20))
    rebuild(env, first)
    changed = growing_group(writer, columns=("ticket_id", "hours"))
    with pytest.raises(DefinitionChanged, match="is not the one"):
        rebuild(env, changed)
    second = growing_group(writer, version=2, columns=("ticket_id", "hours"))
    with raises(ProjectionError, code="generation-missing"):
        cut_over(env, second)
    assert not rebuild(env, second, cut_over=False).serves
    with env.store.transaction() as connection:
        layout = env.store.layout(second, env.store.states(second.name)[-1].run, view_columns(env.spark, second))
        view = layout.views["ticket_rows"].view
        connection.execute(sa.delete(view).where(view.c.ticket_id == "t3"))
    difference = diff(env, second)["ticket_rows"]
    assert (difference.columns, difference.serving_rows, difference.new_rows) == (("ticket_id",), 20, 19)
    assert [(row.key, row.other) for row in difference.differing] == [({"ticket_id": "t3"}, None)]
    assert cut_over(env, second).generation == 2
    with pytest.raises(DefinitionChanged), open_runner(env, first):
        pass
    writer.send(opened(writer, 20, 5))
    with open_runner(env, second) as runner:
        runner.catch_up()
    assert rollback(env, first).generation == 1
    assert rows_of(env) == 25  # the retired generation has caught up before it served
    assert drop(env.store, first.name) == [2]


@pytest.fixture
def projections(env, monkeypatch):
    """Run ``factfold projections …`` on the group GROWING, in this process and on its Spark."""
    url = env.store._engine.url.render_as_string(hide_password=False)
    monkeypatch.setenv("FACTFOLD_VIEWS_URL", url)
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", env.log.settings.kafka.bootstrap_servers)
    monkeypatch.setattr(Environment, "close", lambda self: self.store.close())

    def run(command, *options):
        spec = "tests.integration.rebuild_watching:GROWING"
        result = CliRunner().invoke(application(), ["projections", command, spec, *options])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


def test_the_commands_build_compare_switch_and_go_back(env, writer, projections, monkeypatch):
    group = growing_group(writer)
    monkeypatch.setattr(rebuild_watching, "GROWING", group, raising=False)
    writer.send(opened(writer, 0, 10))
    built = projections("rebuild")
    assert built.stdout.startswith("generation 1: ticket_rows 10 rows; ")
    assert built.stdout.endswith("it serves\n")
    assert "tables, 0 of " in built.stderr
    again = json.loads(projections("rebuild", "--no-cutover", "--json").stdout)
    assert (again["serves"], again["comparison"]["ticket_rows"]["equal"]) == (False, True)
    assert json.loads(projections("diff", "--json").stdout)["ticket_rows"]["equal"] is True
    with env.store.transaction() as connection:
        schema = f"factfold_{group.name}_2"
        connection.execute(sa.text(f"UPDATE {schema}.view_ticket_rows SET status = 'forged' WHERE ticket_id = 't3'"))
    found = projections("diff", "--json")
    told = json.loads(found.stdout)["ticket_rows"]
    assert found.exit_code == 3
    rows = {"one": {"ticket_id": "t3", "status": "open"}, "other": {"ticket_id": "t3", "status": "forged"}}
    assert (told["equal"], told["differing"]) == (False, [{"key": {"ticket_id": "t3"}} | rows])
    assert json.loads(projections("cutover", "--json").stdout) == {"group": group.name, "serving": 2}
    forged = projections("verify", "--json")
    assert (forged.exit_code, json.loads(forged.stdout)["ticket_rows"]["differing_keys"]) == (3, ["t3"])
    assert projections("rollback").stdout == f"{group.name}: generation 1 serves\n"
    assert json.loads(projections("pause", "--json").stdout) == {"group": group.name, "generation": 1, "paused": True}
    assert projections("resume").exit_code == 0
    assert env.store.serving_state(group.name).built["categories"] == {"tickets": Ticket.category}
    assert projections("run", "--once").exit_code == 0
    assert statuses(env, group) == {1: "serving", 2: "retired"}
    writer.send(opened(writer, 10, 3))
    waiting = {row["generation"]: row for row in json.loads(projections("status", "--lag", "--json").stdout)}
    assert {number: row["lag"] for number, row in waiting.items()} == {n: {writer.events_topic: 3} for n in (1, 2)}
    assert all(0 < row["lag_seconds"] < 60 for row in waiting.values())
    assert projections("run", "--once").exit_code == 0
    assert "; 0 offsets wait" in projections("status", "--lag").stdout
