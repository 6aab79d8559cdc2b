"""SQLite and PostgreSQL keep the same state, the same views and the same digests, statement by statement; no Spark."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import signal
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
import sqlalchemy as sa

from projections import ProjectionGroup
from projections.declaring.columns import ColumnType
from projections.errors import (
    DefinitionChanged,
    InvalidDefinition,
    KeyNotUnique,
    NoServingGeneration,
    ProjectionError,
    RunAlreadyActive,
    StagingLost,
    TableStoreUnavailable,
    UndecodableRecord,
    UnsupportedValue,
)
from projections.stores.arrow import arrow_schema
from projections.stores.comparison import Copies, digest_rows
from projections.stores.generations import drop
from projections.stores.locks import REBUILDER
from projections.stores.sqlite import SqliteTableStore
from projections.stores.staging import commit_batch
from tests.conformance.ticket_batches import (
    COLUMNS,
    GROUP,
    batch,
    rows,
    served,
    stage_customer,
    stage_ticket,
    ticket_names,
)
from tests.errors import raises

pytestmark = pytest.mark.both_databases

EVERY_TYPE = {
    "k": (ColumnType("string"), ["b", "ä", "a", "B"]),
    "i": (ColumnType("int"), [1, None, -(2**31), 2**31 - 1]),
    "n": (ColumnType("long"), [2**63 - 1, -(2**63), None, 0]),
    "f": (ColumnType("boolean"), [True, False, None, True]),
    "d": (ColumnType("decimal", 18, 4), [Decimal("12.5"), Decimal(0), None, Decimal("-99999999999999.9999")]),
    "e": (ColumnType("decimal", 30, 12), [Decimal("0.000000000001"), Decimal(0), Decimal(10) ** 17, None]),
    "t": (ColumnType("timestamp"), [dt.datetime(2013, 5, 17, 8, 30, 1, 250, dt.UTC), None,
                                    dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, tzinfo=dt.UTC)]),
    "s": (ColumnType("date"), [dt.date(2013, 2, 28), dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "r": (ColumnType("binary"), [b"", b"\x00\xff", None, b"x"]),
}  # fmt: skip


@pytest.fixture
def sqlite_store(tmp_path):
    opened = SqliteTableStore(tmp_path / "views.db")
    opened.prepare()
    yield opened
    opened.close()


def view_rows(store, view="ticket_names"):
    with store.transaction() as connection:
        return [tuple(row) for row in connection.execute(sa.text(f"SELECT * FROM {view} ORDER BY ticket_id"))]


def sliced(store, layout, name):
    with store.transaction() as connection:
        return sorted(connection.execute(sa.select(layout.views["ticket_names"].roles[name].slice)).all())


def test_values_of_every_type_come_back_and_have_the_digest_of_what_was_written(store):
    columns = {name: kind for name, (kind, _) in EVERY_TYPE.items()}
    _, layout = store.begin_generation(GROUP, {"ticket_names": columns | {"ticket_id": ColumnType("string")}})
    target, known = store.target(layout.views["ticket_names"].view), columns
    written = rows(known, **{name: values for name, (_, values) in EVERY_TYPE.items()})
    target.append(written)
    found = pa.Table.from_batches(target.fetch(known, order_by=["k"]), arrow_schema(known))
    in_order = written.take(pa.array([3, 2, 0, 1]))
    assert found["k"].to_pylist() == ["B", "a", "b", "ä"]
    as_decimals = {n: [v and Decimal(v) for v in found[n].to_pylist()] for n in ("d", "e")}
    assert found.to_pydict() | as_decimals == in_order.to_pydict()
    texts = in_order.set_column(4, "d", pa.array(["-99999999999999.9999", None, "12.5000", "0.0000"]))
    texts = texts.set_column(5, "e", pa.array([None, "100000000000000000.000000000000", "0.000000000001",
                                               "0.000000000000"]))  # fmt: skip
    assert digest_rows(found.to_batches()) == digest_rows(texts.to_batches())


def test_rows_are_read_in_the_order_of_a_decimal_key(store):
    columns = {"ticket_id": ColumnType("decimal", 12, 2)}
    _, layout = store.begin_generation(GROUP, {"ticket_names": columns})
    target = store.target(layout.views["ticket_names"].view)
    target.append(rows(columns, ticket_id=[Decimal(v) for v in ("9.5", "-0.5", "10", "-10", "0", "-9.25", "10.5")]))
    found = [Decimal(v) for b in target.fetch(columns, order_by=["ticket_id"]) for v in b.column(0).to_pylist()]
    assert found == sorted(found)


def test_rows_are_found_by_their_places_once_each(store):
    columns = COLUMNS["ticket_names"]
    _, layout = store.begin_generation(GROUP, COLUMNS)
    target = store.target(layout.views["ticket_names"].view)
    keys = [f"t{i}" for i in range(2_500)]
    target.append(rows(columns, ticket_id=keys, hours=[Decimal(1)] * 2_500, since=[None] * 2_500))
    step = target.extent() // 3 + 1
    parts = [target.fetch_between(columns, i * step, (i + 1) * step) for i in range(3)]
    assert sorted(k for part in parts for b in part for k in b.column(0).to_pylist()) == sorted(keys)


def test_a_batch_changes_state_view_and_progress_and_a_second_one_only_what_differs(store):
    run, layout = served(store)
    assert batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 0), "t1", to=1) == (1, 0)
    assert view_rows(store) == [("t1", *view_rows(store)[0][1:])]
    assert batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 1), "t1", to=2) == (0, 0)
    assert batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 2), "t1", to=3, hours="2") == (1, 0)
    assert batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 3), to=4) == (0, 1)
    assert view_rows(store) == []
    assert store.progress(run) == {"ticket": {0: 4}}


def test_a_change_of_a_referenced_row_reaches_the_rows_that_point_to_it(store):
    run, layout = served(store)
    batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 0), "t1", to=1)
    batch(store, run, layout, lambda: stage_customer(store, layout, 10), "t1", to=2)
    assert [row[0] for row in sliced(store, layout, "tickets")] == ["t1"]
    assert [row[1] for row in sliced(store, layout, "customers")] == ["Ann"]
    batch(store, run, layout, lambda: stage_customer(store, layout, 20, deleted=True), "t1", to=3)
    assert sliced(store, layout, "customers") == []


def stored(store, layout, *columns):
    """What the state of the customers has in these columns."""
    state = layout.tables["customers"].state
    with store.transaction() as connection:
        return connection.execute(sa.select(*(state.c[name] for name in columns))).all()


def test_a_row_that_is_older_than_the_stored_one_reaches_no_view(store):
    run, layout = served(store)
    batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 0), "t1", to=1)
    batch(store, run, layout, lambda: stage_customer(store, layout, 20), "t1", to=2)
    assert batch(store, run, layout, lambda: stage_customer(store, layout, 10, deleted=True), to=3) == (0, 0)


def test_a_value_that_a_change_leaves_out_stays_as_it_was_and_is_missed_where_nobody_knows_it(store):
    run, layout = served(store)
    with pytest.raises(UndecodableRecord, match="the value of note is unavailable"):
        batch(store, run, layout, lambda: stage_customer(store, layout, 5, note=None), to=1)
    batch(store, run, layout, lambda: stage_customer(store, layout, 10, note="kept"), to=1)
    batch(store, run, layout, lambda: stage_customer(store, layout, 20, note=None), to=2)
    assert stored(store, layout, "note") == [("kept",)]


def test_a_value_of_another_life_of_the_source_is_not_taken(store):
    run, layout = served(store)
    batch(store, run, layout, lambda: stage_customer(store, layout, 10, note="of the first"), to=1)
    with pytest.raises(UndecodableRecord, match="the value of note is unavailable"):
        batch(store, run, layout, lambda: stage_customer(store, layout, 20, note=None, epoch=1), to=2)
    batch(store, run, layout, lambda: stage_customer(store, layout, 5, note="of the second", epoch=1), to=2)
    batch(store, run, layout, lambda: stage_customer(store, layout, 6, note=None, epoch=1), to=3)
    assert stored(store, layout, "note") == [("of the second",)]


def test_a_text_with_a_nul_is_kept_or_refused_by_name(store):
    run, layout = served(store)
    kept = (
        contextlib.nullcontext()
        if isinstance(store, SqliteTableStore)
        else pytest.raises(UnsupportedValue, match="0x00")
    )
    with kept:
        batch(store, run, layout, lambda: stage_customer(store, layout, 10, note="a\0b"), to=1)
        assert stored(store, layout, "note") == [("a\0b",)]
    batch(store, run, layout, lambda: stage_customer(store, layout, 20), to=2, start=store.progress(run)["ticket"][0])


def test_a_tombstone_alone_deletes_at_the_position_of_the_stored_row(store):
    run, layout = served(store)
    batch(store, run, layout, lambda: stage_customer(store, layout, 10), to=1)

    def stage_tombstone():
        stage_customer(store, layout, 0, deleted=True)
        with store.transaction() as connection:
            staged = layout.tables["customers"].staged
            connection.execute(sa.update(staged).values({"_pos": None, "_epoch": None, "_offset": 99}))

    batch(store, run, layout, stage_tombstone, to=2)
    assert stored(store, layout, "_pos", "_deleted") == [(10, True)]


def test_a_missing_version_is_seen(store):
    run, layout = served(store)
    batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 0), "t1", to=1)
    with pytest.raises(UndecodableRecord, match="events are missing before version 2"):
        batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 2), "t1", to=2)


def test_versions_that_come_again_must_be_whole_only_behind_the_stored_one(store):
    run, layout = served(store)
    batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 0), "t1", to=1)
    batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 3, first=0), "t1", to=2)
    batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 5, first=4), "t1", to=3)
    with pytest.raises(UndecodableRecord, match=r"(?s)before version 7 .*stored version 5"):
        batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 8, first=7), "t1", to=4)


@pytest.mark.parametrize(("keys", "words"), [(("t1", "t1"), "'t1' twice"), (("t9",), "no key of the rows")])
def test_a_view_function_that_returns_wrong_keys_is_refused(store, keys, words):
    run, layout = served(store)
    with pytest.raises(KeyNotUnique, match=words):
        batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 0), *keys, to=1)


@pytest.mark.parametrize("keys", [["t1", "t1"], ["t1", None]], ids=["twice", "null"])
def test_a_rebuild_with_wrong_keys_does_not_serve(store, keys):
    _, layout = store.begin_generation(GROUP, COLUMNS)
    columns = COLUMNS["ticket_names"]
    store.target(layout.views["ticket_names"].view).append(
        rows(columns, ticket_id=keys, hours=[None, None], since=[None, None])
    )
    with pytest.raises(KeyNotUnique):
        store.index_generation(GROUP, layout)


def test_a_batch_of_a_superseded_runner_or_without_its_mark_writes_nothing(store):
    run, layout = served(store)
    with store.transaction() as connection, pytest.raises(StagingLost):
        commit_batch(connection, layout, run, start={"ticket": {0: 0}}, end={"ticket": {0: 1}}, mark="another")
    store.claim(run)
    with raises(ProjectionError, code="run-superseded"), store.staging(run):
        pass
    with store.transaction() as connection, raises(ProjectionError, code="run-superseded"):
        commit_batch(connection, layout, run, start={"ticket": {0: 0}}, end={"ticket": {0: 1}}, mark="")


def test_a_rebuild_replaces_the_serving_generation_and_clears_unfinished_ones_away(store):
    with pytest.raises(NoServingGeneration):
        store.serving(GROUP, COLUMNS)
    served(store)
    store.begin_generation(GROUP, COLUMNS)  # and never finished
    run, layout = store.begin_generation(GROUP, COLUMNS)
    result_columns = COLUMNS["ticket_names"]
    store.target(layout.views["ticket_names"].view).append(
        rows(result_columns, ticket_id=["t1"], hours=[None], since=[None])
    )
    store.index_generation(GROUP, layout)
    store.serve(GROUP, run, layout, {"ticket": {0: 5}})
    assert drop(store, GROUP.name) == [1]
    assert [(r["generation"], r["status"]) for r in store.generations()] == [(3, "serving")]
    assert [row[0] for row in view_rows(store)] == ["t1"]


def test_another_definition_than_the_serving_one_is_refused(store):
    served(store)
    with pytest.raises(DefinitionChanged):
        store.serving(ProjectionGroup("tickets", [ticket_names], version=2), COLUMNS)


def test_verify_sees_the_keys_that_differ(store):
    run, layout = served(store)
    batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 0), "t1", to=1)
    again, columns = store.target(layout.views["ticket_names"].recomputed_copy), COLUMNS["ticket_names"]
    copies = Copies(store, run, layout, {"ticket_names": tuple(columns)})
    assert copies.take() == {"ticket": {0: 1}}

    def differing():
        found = copies.against_recomputed("ticket_names").differing
        return [(row.key["ticket_id"], row.one, row.other) for row in found]

    again.append(rows(columns, ticket_id=["t1"], hours=[Decimal("1.5")], since=[None]))
    assert differing() == []
    again.append(rows(columns, ticket_id=["t2"], hours=[None], since=[None]))
    assert differing() == [("t2", None, {"ticket_id": "t2", "hours": None, "since": None})]
    copies.drop()


def test_each_role_of_a_group_is_held_by_one_at_a_time(store):
    with store.exclusive("tickets", role="1"), store.exclusive("others", role="1"):
        with pytest.raises(RunAlreadyActive, match="another runner holds projection group 'tickets', generation 1"):
            with store.exclusive("tickets", role="1"):
                pass
        with store.exclusive("tickets", role="2"), store.exclusive("tickets", role=REBUILDER):
            assert store.is_held("tickets", role=REBUILDER)
            assert not store.is_held("others", role=REBUILDER)
            with pytest.raises(RunAlreadyActive, match="another rebuild"):
                with store.exclusive("tickets", role=REBUILDER):
                    pass
    assert not store.is_held("tickets", role="1")
    with store.exclusive("tickets", role="1"):
        pass


def test_a_killed_process_lets_its_group_go(sqlite_store):
    holder = (
        "import sys, time; from projections.stores.sqlite import SqliteTableStore\n"
        "with SqliteTableStore(sys.argv[1]).exclusive('tickets', role='1'): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", holder, sqlite_store.path], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(RunAlreadyActive), sqlite_store.exclusive("tickets", role="1"):
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.wait(20)
        with sqlite_store.exclusive("tickets", role="1"):
            pass


def test_dropping_a_generation_spares_groups_whose_names_begin_alike(sqlite_store):
    others = ProjectionGroup("tickets_1", [replace(ticket_names, name="other_names")])
    columns = {"other_names": COLUMNS["ticket_names"]}
    run, layout = sqlite_store.begin_generation(others, columns)
    sqlite_store.index_generation(others, layout)
    sqlite_store.serve(others, run, layout, {})
    sqlite_store.begin_generation(GROUP, COLUMNS)
    sqlite_store.begin_generation(GROUP, COLUMNS)
    assert view_rows(sqlite_store, "other_names") == []


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (ColumnType("double"), float("nan"), "not a number"),
        (ColumnType("timestamp"), 300_000_000_000_000_000, "the year 11476"),
        (ColumnType("date"), 3_000_000, "the year 10183"),
    ],
)
def test_a_value_that_sqlite_would_change_is_refused(sqlite_store, kind, value, words):
    columns = {"ticket_id": ColumnType("string"), "x": kind}
    _, layout = sqlite_store.begin_generation(GROUP, {"ticket_names": columns})
    with pytest.raises(UnsupportedValue, match=f"column 'x' has .*{words}"):
        sqlite_store.target(layout.views["ticket_names"].view).append(rows(columns, ticket_id=["a"], x=[value]))


def test_a_view_may_not_have_the_name_of_a_table_of_the_database(store):
    with store.transaction() as connection:
        connection.execute(sa.text("CREATE TABLE ticket_names (ticket_id int)"))
    with pytest.raises(InvalidDefinition, match="the name of a table of this database"):
        served(store)
    assert view_rows(store) == []


@pytest.mark.parametrize("of_ours", [True, False])
def test_a_view_may_not_have_the_name_of_a_view_of_another(store, of_ours):
    """Such as another group's, whose name may begin alike."""
    if of_ours:
        others = ProjectionGroup("tickets_1", [ticket_names])
        run, layout = store.begin_generation(others, COLUMNS)
        store.index_generation(others, layout)
        store.serve(others, run, layout, {})
    else:
        with store.transaction() as connection:
            connection.execute(sa.text("CREATE VIEW ticket_names AS SELECT 1 AS ticket_id WHERE 1 = 0"))
    shown = ", which shows factfold_tickets_1_1" if of_ours else ""
    with pytest.raises(InvalidDefinition, match=f"the name of a view of this database{shown}\n"):
        served(store)
    assert view_rows(store) == []


def test_a_name_that_was_taken_while_a_generation_was_built_keeps_it_from_serving(store):
    run, layout = store.begin_generation(GROUP, COLUMNS)
    store.index_generation(GROUP, layout)
    with store.transaction() as connection:
        connection.execute(sa.text("CREATE VIEW ticket_names AS SELECT 1 AS ticket_id WHERE 1 = 0"))
    with pytest.raises(InvalidDefinition, match="the name of a view of this database"):
        store.serve(GROUP, run, layout, {})
    assert store.states(GROUP.name, "serving") == []


@pytest.mark.parametrize(
    "master", ["spark://there:7077", "yarn", "local-cluster[2,1,1024]", "local[2,4]", "k8s://there"]
)
def test_a_spark_on_other_machines_is_refused(sqlite_store, master):
    with raises(ProjectionError, code="unsupported-master", match=r"cannot be updated by a Spark at"):
        sqlite_store.check_master(master)
    sqlite_store.check_master("local[*]")


def test_a_file_that_is_no_database_is_told(tmp_path):
    (tmp_path / "views.db").write_bytes(b"no database" * 100)
    store = SqliteTableStore(tmp_path / "views.db")
    with pytest.raises(TableStoreUnavailable, match="file is not a database"):
        store.prepare()
    store.close()
