"""Running a service while it is written: which files changed, what is run, how processes are kept and shown."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from rich.console import Console

from eventstore import NO_STREAM, RecordedEvent, SqlEventStore, subscription
from eventstore.errors import DeclarationError
from factfold.development import supervising
from factfold.development.dev_loop import Watch
from factfold.development.from_store import source_of
from factfold.development.parts import LeftOut, Part, parts_of, prepare_new_store
from factfold.development.supervising import Lines, Running, State, Supervisor, table_of
from factfold.development.turn import Turn, changed_views, own_lines
from factfold.discovery import Definition, Discovery
from factfold.scaffolding import create_project
from factfold.settings_file import use_settings_file
from projections import ProjectionGroup, Table, view
from projections.stores.sqlite import SqliteTableStore
from tests.commands import factfold
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SQLITE = {"FACTFOLD_STORE_URL": "sqlite:///shop.db", "FACTFOLD_VIEWS_URL": "sqlite:///shop.db"}
SERVERS = {"FACTFOLD_STORE_URL": "postgresql+psycopg://db/shop", "FACTFOLD_VIEWS_URL": "postgresql+psycopg://db/views"}


# Watching


def test_files_that_are_changed_made_and_deleted_are_named(tmp_path):
    for name in ("a.py", "b.py", "notes.txt", ".hidden/c.py", "venv/pyvenv.cfg", "venv/d.py", "deep/er/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    watch = Watch(tmp_path)
    assert watch.changes() == []
    (tmp_path / "a.py").write_text("22")
    (tmp_path / "b.py").unlink()
    for name in ("deep/er/new.sql", "notes.txt", ".hidden/c.py", "venv/d.py"):
        (tmp_path / name).write_text("333")
    assert watch.changes() == [Path("a.py"), Path("b.py"), Path("deep/er/new.sql")]
    assert watch.changes() == []


def test_waiting_ends_with_a_change_or_with_the_signal(tmp_path):
    watch, stop = Watch(tmp_path), threading.Event()
    threading.Timer(0.1, (tmp_path / "a.py").write_text, ["1"]).start()
    assert watch.wait(stop) == [Path("a.py")]
    stop.set()
    assert watch.wait(stop) == []


# Turns


def group_of(*columns, version=1):
    kinds = (sa.Column(name, sa.Text) for name in columns)
    model = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), *kinds)

    @view(key="id", tables={"t": Table.from_changelog(model, topic="t")})
    def shown(t):
        return t

    return ProjectionGroup("shop", [shown], version=version)


def served(store, group):
    """A generation of a group that serves, without any rows."""
    columns = {"shown": group.tables["t"].columns}
    run, layout = store.begin_generation(group, columns)
    store.serve(group, run, layout, {})


def test_a_changed_definition_gets_a_version_that_no_generation_has(tmp_path):
    with closing(SqliteTableStore(tmp_path / "views.db")) as store:
        store.prepare()
        first = Turn.of(store, group_of())
        assert (first.group.version, first.serves) == (1, False)
        served(store, first.group)
        unchanged = Turn.of(store, group_of())
        assert (unchanged.group.version, unchanged.serves) == (1, True)
        changed = Turn.of(store, group_of("name"))
        assert (changed.group.version, changed.serves) == (2, False)
        served(store, changed.group)
        # The code still says version 1, and its definition is the one that serves.
        again = Turn.of(store, group_of("name"))
        assert (again.group.version, again.serves) == (2, True)
        assert Turn.of(store, group_of("name", "city", version=7)).group.version == 7


def test_the_views_that_changed_since_the_last_turn_are_named(tmp_path):
    file = tmp_path / "signatures.json"
    assert changed_views(group_of(), file) == []  # the first turn has none to compare with
    assert changed_views(group_of(), file) == []
    assert changed_views(group_of("name"), file) == ["shown"]


def test_an_error_of_the_users_code_is_shown_with_the_lines_of_the_project_alone(tmp_path):
    code = tmp_path / "own.py"
    code.write_text("import json\n\n\ndef read():\n    return json.loads('{')\n")
    scope = {}
    exec(compile(code.read_text(), str(code), "exec"), scope)
    with pytest.raises(json.JSONDecodeError) as caught:
        scope["read"]()
    said = own_lines(caught.value, tmp_path)
    assert f'File "{code}", line 5, in read' in said
    assert said.count("File ") == 1
    assert "JSONDecodeError" in said.splitlines()[-1]


# Parts


def test_the_parts_of_a_service_with_servers_are_its_commands(service):
    planned = {(one.kind, one.name): one for one in parts_of(service, SERVERS)}
    commands = {key: one.command[2:] for key, one in planned.items() if isinstance(one, Part)}
    assert commands == {
        ("projections", "shop.views:shop"): ("factfold", "projections", "run", "shop.views:shop"),
        ("branches", "shop.routes:routes"): ("factfold", "branches", "run", "shop.routes:routes"),
        ("subscription", "shop.reactions:book"): ("factfold", "subscriptions", "run", "shop.reactions:book"),
        ("queue", "shop.reactions:write"): ("factfold", "subscriptions", "run", "shop.reactions:write"),
        ("process", "shop.processes:Pay, shop.processes:Ship"): (
            "factfold", "processes", "run", "shop.processes:Pay", "shop.processes:Ship",
        ),
    }  # fmt: skip
    subscription = planned["subscription", "shop.reactions:book"]
    assert subscription.variables == {"FACTFOLD_INBOX_URL": SERVERS["FACTFOLD_STORE_URL"]}
    assert planned["branches", "shop.routes:routes"].variables == {"FACTFOLD_CHECKPOINTS": ".factfold/checkpoints"}


def test_without_servers_each_part_runs_as_it_can_or_says_why_not(service):
    planned = {(one.kind, one.name): one for one in parts_of(service, SQLITE)}
    assert {key for key, one in planned.items() if isinstance(one, Part)} == {
        ("projections", "shop.views:shop"),
        ("subscription", "shop.reactions:book"),
        ("process", "shop.processes:Pay, shop.processes:Ship"),
    }
    reasons = {key[0]: one.reason for key, one in planned.items() if isinstance(one, LeftOut)}
    assert "evaluate it themselves" in reasons["branches"]
    assert "share group" in reasons["queue"]


def test_a_setting_that_is_missing_is_named(service):
    reasons = [one.reason for one in parts_of(service, {}) if isinstance(one, LeftOut)]
    assert any("set views_url or FACTFOLD_VIEWS_URL" in reason for reason in reasons)
    assert any("set store_url or FACTFOLD_STORE_URL" in reason for reason in reasons)


def test_a_module_that_fails_is_a_part_that_does_not_run(service):
    found = Discovery(("shop",), (), {"shop.broken": "ImportError: no"})
    assert parts_of(found, SQLITE) == [LeftOut("shop.broken", "module", "ImportError: no")]


@pytest.fixture
def service():
    def book(): ...

    class Handler:
        pattern, topics, retry = None, ("order",), ()

    definitions = [
        Definition("projections", "shop.views:shop", group_of()),
        Definition("branches", "shop.routes:routes", None),
        Definition("subscription", "shop.reactions:book", Handler),
        Definition("queue", "shop.reactions:write", Handler),
        Definition("process", "shop.processes:Pay", None),
        Definition("process", "shop.processes:Ship", None),
    ]
    return Discovery(("shop",), tuple(definitions))


def test_a_topic_of_no_aggregate_of_the_service_is_refused():
    @subscription("elsewhere", group="books")
    def book(event: RecordedEvent) -> None: ...

    with closing(SqlEventStore("sqlite://")) as store:
        store.create_tables()
        with pytest.raises(DeclarationError, match="is of no aggregate and no branches"):
            source_of(store, Discovery(("shop",)), book)


# Supervising


def part(name, code):
    return Part(name, "process", (sys.executable, "-c", code))


STEADY = "import signal, time; print('following'); signal.signal(signal.SIGTERM, lambda *_: exit(0)); time.sleep(60)"


class Told:
    def __init__(self):
        self.states, self.lines = [], []

    def supervisor(self, tmp_path, *parts, limit=2):
        return Supervisor(
            parts,
            tmp_path / "logs",
            limit=limit,
            on_state=lambda one: self.states.append((one.part.name, one.state.value)),
            on_line=lambda one, line: self.lines.append((one.part.name, line)),
        )


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(supervising, "_FIRST_WAIT", 0.01)
    return Told()


def test_parts_run_side_by_side_and_end_with_the_signal(tmp_path, told):
    supervisor, stop = told.supervisor(tmp_path, part("a", STEADY), part("b", STEADY)), threading.Event()
    thread = threading.Thread(target=supervisor.run, kwargs={"stop": stop})
    thread.start()
    wait_until(lambda: [one.state for one in supervisor.running] == [State.RUNNING] * 2, within=30)
    stop.set()
    thread.join(30)
    assert [one.state for one in supervisor.running] == [State.ENDED] * 2
    assert supervisor.failed == []


def test_a_part_that_fails_is_started_again_and_given_up_after_the_limit(tmp_path, told):
    supervisor = told.supervisor(tmp_path, part("bad", "print('oh'); raise SystemExit(3)"), part("good", "print(1)"))
    supervisor.run(stop=threading.Event())
    assert [state for name, state in told.states if name == "bad"] == [
        "starting", "waiting", "starting", "waiting", "starting", "failed",
    ]  # fmt: skip
    assert [one.part.name for one in supervisor.failed] == ["bad"]
    assert [(one.state, one.restarts) for one in supervisor.running if one.part.name == "good"] == [(State.ENDED, 0)]
    log = (tmp_path / "logs" / "process-bad.log").read_text()
    assert log.count("  oh\n") == 3


def test_the_screen_shows_cause_and_remedy_of_a_part_that_failed(tmp_path, told):
    shown = "print('going'); print('error: no broker answers'); print('  remedy: start it, or correct its address'); "
    supervisor = told.supervisor(tmp_path, part("bad", f"{shown}print('  at: broker-1:9092'); raise SystemExit(1)"))
    supervisor.run(stop=threading.Event())
    cell = " ".join(rendered(table_of(supervisor.running, [])).split())
    for words in ("error: no broker answers", "remedy: start it, or correct", "its address"):
        assert words in cell
    assert "broker-1" not in cell


def test_a_log_is_bounded(tmp_path, told, monkeypatch):
    monkeypatch.setattr(supervising, "LOG_BYTES", 10_000)
    supervisor = told.supervisor(tmp_path, part("loud", "for n in range(5000): print('line', n)"))
    supervisor.run(stop=threading.Event())
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "logs").iterdir()}
    assert sizes.keys() == {"process-loud.log", "process-loud.log.1"}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "logs").iterdir()} == {0o600}
    assert max(sizes.values()) <= 10_000
    assert "line 4999" in (tmp_path / "logs" / "process-loud.log").read_text()
    assert len(told.lines) == 5000


# The screen


def rendered(table):
    console = Console(file=io.StringIO(), width=160)
    console.print(table)
    return console.file.getvalue()


def test_the_screen_has_a_line_for_each_part(tmp_path):
    one = Running(part("shop.views:shop", ""), tmp_path / "log", state=State.RUNNING, restarts=2, line="[x]3 records")
    one.since = time.monotonic() - 3_725
    said = rendered(table_of([one], [LeftOut("shop.routes:routes", "branches", "no Kafka")]))
    assert [line.split() for line in said.splitlines()[1:]] == [
        ["shop.views:shop", "process", "running", "1h02m", "2", "[x]3", "records"],
        ["shop.routes:routes", "branches", "not", "run", "no", "Kafka"],
    ]


def test_without_a_terminal_states_and_lines_are_lines_or_json(tmp_path, capsys):
    one = Running(part("a", ""), tmp_path / "log", state=State.FAILED, failures=3)
    for as_json in (False, True):
        lines = Lines(as_json=as_json)
        lines.on_state(one)
        lines.on_line(one, "hello")
        lines.left_out(LeftOut("b", "queue", "no Kafka"))
    plain, machine = capsys.readouterr().out.splitlines()[:3], None
    assert plain == [f"a | failed after failure 3; its log is {one.log}", "a | hello", "b | not run: no Kafka"]
    assert machine is None


# The command


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A service of one subscription, its store with an event, and its folder as the current one."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FACTFOLD_STORE_URL", "sqlite:///shop.db")
    with closing(SqlEventStore("sqlite:///shop.db")) as store:
        store.create_tables()
    yield tmp_path
    for module in [module for module in sys.modules if module.partition(".")[0] == "shop"]:
        del sys.modules[module]


SHOP = """
from eventstore import Aggregate, Metadata, RecordedEvent, event, subscription
from sqlalchemy import Connection, text

class Order(Aggregate):
    @event
    class Placed:
        amount: int

@subscription("order", group="books")
def book(event: Order.Placed, tx: Connection) -> None:
    tx.execute(text("INSERT INTO booked VALUES (:amount)"), {"amount": event.amount})
"""


def test_up_delivers_events_until_a_signal_comes(shop, capfd):
    engine = sa.create_engine("sqlite:///shop.db")
    from shop import Order  # type: ignore[import-not-found]

    with closing(SqlEventStore("sqlite:///shop.db")) as store:
        store.append("order-1", [Order.Placed(amount=7)], expected=NO_STREAM)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE booked (amount int)")

    def booked():
        with engine.connect() as connection:
            return connection.exec_driver_sql("SELECT amount FROM booked").scalars().all()

    def end():
        wait_until(lambda: booked() == [7], within=60)
        os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=end)
    ending.start()
    result = factfold("up", "--json")
    ending.join()
    engine.dispose()
    assert result.exit_code == 0, result.output
    said = [json.loads(line) for line in result.output.splitlines()]
    assert [one["state"] for one in said if "state" in one] == ["starting", "running", "ended"]
    assert {one["part"] for one in said} == {"shop:book"}


def test_up_without_anything_to_run_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = factfold("up")
    assert isinstance(result.exception, DeclarationError)
    assert "in 0 packages of this folder" in result.exception.message


# A new store


def test_a_store_that_is_missing_is_prepared_once_with_what_the_service_adds(shop):
    Path("shop.db").unlink()
    Path("shop/tables.py").write_text(PREPARE)
    assert prepare_new_store("shop", SQLITE, "shop.tables:prepare") == "shop.db"
    with closing(SqlEventStore("sqlite:///shop.db")) as store:
        assert store.version().is_current
        assert [one.name for one in store.categories()] == ["order"]
        with store.engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT amount FROM booked").all() == []
    assert prepare_new_store("shop", SQLITE, "shop.tables:prepare") is None


PREPARE = """
def prepare(store):
    with store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE booked (amount int)")
"""


def test_a_function_that_is_missing_is_refused_before_the_tables_are_created(shop):
    Path("shop.db").unlink()
    with pytest.raises(DeclarationError, match="has no function 'prepare'"):
        prepare_new_store("shop", SQLITE, "shop:prepare")
    with closing(SqlEventStore("sqlite:///shop.db")) as store:
        assert store.version().installed is None


def test_a_store_on_a_server_is_left_to_who_prepares_servers():
    assert prepare_new_store("shop", SERVERS) is None


def test_a_new_project_runs_with_one_command(tmp_path, monkeypatch):
    create_project("corner_shop", parent=tmp_path)
    monkeypatch.chdir(tmp_path / "corner_shop")
    monkeypatch.syspath_prepend(tmp_path / "corner_shop")
    settings = {}
    use_settings_file(settings)
    assert prepare_new_store("corner_shop", settings, settings["FACTFOLD_PREPARE"]) == "corner_shop.db"
    engine = sa.create_engine(settings["FACTFOLD_STORE_URL"])
    assert {"customers", "reviews"} <= set(sa.inspect(engine).get_table_names())
    engine.dispose()
    for module in [module for module in sys.modules if module.partition(".")[0] == "corner_shop"]:
        del sys.modules[module]
