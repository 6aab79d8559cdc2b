"""What would change is told by setting, and no secret with it; steps of a preparation; which database is whose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
import requests
import responses
from sqlalchemy import create_engine, make_url

from cdc import ConnectClient, OutboxSource, apply_connector, delete_connector, plan_connectors, set_connector_state
from cdc.connect.status import FAILED, PAUSED, RUNNING, STOPPED, ConnectorStatus, TaskStatus
from cdc.errors import ConnectorTimeout, ConnectUnavailable, InvalidConnector, SourceNotReady, UnknownConnector
from cdc.operating import control
from cdc.operating.control import Deadline, Watch, wait_for_worker
from cdc.operating.planning import MASK, SettingChange, differences, unread
from cdc.preparing.steps import PreparedStep, Step, run_steps
from cdc.source.catalogue import not_of
from eventstore import Settings
from eventstore.errors import ForeignRecord
from tests.unit.cdc.declared import heartbeat, outbox, postgres

HEARTS = heartbeat(name="hearts")


class Cluster:
    """One connector, as declared, in some state."""

    def __init__(self, state, *tasks):
        self._status = ConnectorStatus("hearts", state, "here", tuple(TaskStatus(0, task, "here") for task in tasks))

    def overview(self):
        return {"hearts": ({"name": "hearts", **HEARTS.config()}, self._status)}


@pytest.mark.parametrize(
    ("state", "tasks", "action"),
    [
        (RUNNING, [RUNNING], "keep"),
        (RUNNING, [FAILED], "restart"),
        (FAILED, [], "restart"),
        (PAUSED, [PAUSED], "resume"),
        (PAUSED, [FAILED], "restart"),
        (STOPPED, [], "resume"),
    ],
)
def test_what_apply_would_mend_is_told_though_nothing_is_changed(state, tasks, action):
    (planned,) = plan_connectors(Cluster(state, *tasks), [HEARTS])
    assert (planned.action, planned.is_no_op, planned.changes) == (action, action == "keep", ())
    assert planned.state == f"{state}, {f'task 0 {tasks[0]}' if tasks else 'no task'}"


def source(*tables, **changes):
    return postgres(tables=tables, **changes).config()


def test_rows_of_a_table_that_is_added_are_told_to_be_left_out():
    (note,) = unread(source("public.a"), source("public.a", "public.b_c", "public.d"))
    assert note.startswith("rows already in public.b_c, public.d are not read")
    assert "factfold cdc snapshot take … --table public.b_c --table public.d" in note


@pytest.mark.parametrize(
    ("running", "declared"),
    [
        (source("public.a", "public.b"), source("public.b")),
        (source("public.a"), source("public.a", extra={"snapshot.mode": "no_data"})),
        (source("public.a"), source("public.a", "public.b", extra={"snapshot.mode": "always"})),
        (source("public.a"), source("public.a", signal_table="public.signals")),
        ({}, source("public.a")),
    ],
)
def test_nothing_is_told_where_no_rows_are_left_out(running, declared):
    assert unread(running, declared) == ()


def test_a_declaration_that_differs_is_a_change_and_one_that_is_missing_is_undeclared() -> None:
    running = Cluster(RUNNING, RUNNING)
    (changed,) = plan_connectors(running, [replace(HEARTS, interval_seconds=9)])
    assert (changed.action, [change.key for change in changed.changes]) == (
        "change", ["emit.heartbeats.interval.seconds"],
    )  # fmt: skip
    assert [(one.name, one.action) for one in plan_connectors(running, [replace(HEARTS, name="other")])] == [
        ("other", "create"), ("hearts", "undeclared"),
    ]  # fmt: skip


def test_what_is_new_other_and_gone_is_told_by_key() -> None:
    running = {"a": "1", "b": "2", "c": "3"}
    assert differences(running, {"a": "1", "b": "5", "d": "4"}) == (
        SettingChange("b", "2", "5"),
        SettingChange("c", "3", None),
        SettingChange("d", None, "4"),
    )


@pytest.mark.parametrize(
    "key",
    [
        "database.password", "producer.override.sasl.jaas.config", "schema.registry.basic.auth.credentials.source",
        "mongodb.connection.string", "ssl.keystore.PASSWORD", "oauth.client.secret", "x.api.key", "access_token",
        "producer.override.ssl.keystore.key", "ssl.truststore.certificates", "key.converter.basic.auth.user.info",
    ],
)  # fmt: skip
def test_a_secret_that_differs_is_seen_to_and_not_what_it_is(key: str) -> None:
    (change,) = differences({key: "sentinel-old"}, {key: "sentinel-new"})
    assert change == SettingChange(key, MASK, MASK)


def box(target: str, boxes: list[str], *, needs: str = "", denied: bool = False, done: str = "") -> Step:
    """A step that needs the box before it, and makes its own."""

    def look() -> str:
        if needs and needs not in boxes:
            raise SourceNotReady(f"there is no {needs}", remedy="make it")
        return "" if target in boxes else "a box"

    def make() -> None:
        if denied:
            raise SourceNotReady("denied", remedy="ask an administrator")
        boxes.append(target)

    return Step("box", target, look, make, lambda: (f"CREATE BOX {target}",), done)


def run(*steps: Step, dry_run: bool = False) -> list[tuple[str, str]]:
    seen: list[PreparedStep] = []
    try:
        run_steps(steps, on_step=seen.append, dry_run=dry_run)
    except SourceNotReady:
        assert seen[-1].outcome == "failed"
    return [(step.target, step.outcome) for step in seen]


def test_what_is_missing_is_made_in_order_and_what_is_present_stays() -> None:
    boxes = ["b"]
    steps = (box("a", boxes), box("b", boxes, needs="a"), box("c", boxes, needs="a"))
    assert run(*steps) == [("a", "made"), ("b", "present"), ("c", "made")]
    assert run(*steps) == [("a", "present"), ("b", "present"), ("c", "present")]


def test_a_dry_run_changes_nothing_and_leaves_open_what_it_cannot_see_yet() -> None:
    boxes: list[str] = []
    steps = (box("a", boxes), box("b", boxes, needs="a"))
    assert run(*steps, dry_run=True) == [("a", "missing"), ("b", "unknown")]
    assert boxes == []


def test_a_dry_run_says_what_would_fail_and_looks_at_the_rest() -> None:
    boxes: list[str] = []
    assert run(box("b", boxes, needs="a"), box("c", boxes), dry_run=True) == [("b", "failed"), ("c", "missing")]


def test_a_run_stops_at_the_first_failure_with_the_sql_of_the_step() -> None:
    boxes: list[str] = []
    seen: list[PreparedStep] = []
    with pytest.raises(SourceNotReady, match="denied"):
        run_steps([box("a", boxes, denied=True), box("b", boxes)], on_step=seen.append, dry_run=False)
    assert [(step.target, step.detail, step.sql) for step in seen] == [("a", "a box", ("CREATE BOX a",))]
    assert boxes == []


def test_a_step_that_was_done_has_no_sql() -> None:
    seen: list[PreparedStep] = []
    run_steps([box("a", [], done="a large box")], on_step=seen.append, dry_run=False)
    assert (seen[0].detail, seen[0].sql) == ("a large box", ())


SHOP = postgres().config()
MIRROR = HEARTS.config()


@pytest.mark.parametrize("url", ["db:5432/shop", "db/shop", "localhost:15432/shop"])
def test_the_database_of_the_name_is_the_connector_s(url: str) -> None:
    assert not_of(create_engine(make_url(f"postgresql+psycopg://ann:x@{url}")), SHOP) is None


@pytest.mark.parametrize(
    ("url", "config", "reason"),
    [
        ("db:5432/other", SHOP, "it reads database shop, and the one given is other"),
        ("db:5433/shop", SHOP, "it reads the server at port 5432, and the one given is at 5433"),
        ("db:5432", SHOP, "it reads database shop, and the one given is ann"),
        ("db:5432/shop", MIRROR, "it does not read PostgreSQL"),
    ],
)
def test_another_one_is_not_and_it_is_said_why(url: str, config: dict[str, str], reason: str) -> None:
    assert not_of(create_engine(make_url(f"postgresql+psycopg://ann:x@{url}")), config) == reason


# ---- Connectors that are stopped, waited for and deleted, where a worker forgets, says odd things, or is away


@dataclass
class Worker:
    """Shows one status after another: the next one each time it is asked to stop, None for no status yet."""

    shown: list[tuple[str, str] | None]
    calls: list[str] = field(default_factory=list)

    def stop(self, name):
        self.calls.append("stop")

    def restart(self, name, *, include_tasks):
        assert not include_tasks
        self.calls.append("restart")

    def delete_offsets(self, name):
        self.calls.append("forget")

    def status(self, name):
        now = self.shown[min(self.calls.count("stop"), len(self.shown)) - 1]
        if now is None:
            raise UnknownConnector("none", remedy="", status=404)
        state, task = now
        return ConnectorStatus(name, state, "here", (TaskStatus(0, task, "here"),) if task else ())


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(control, "_ASK_AGAIN_SECONDS", 0.05)


def stopped(worker, *, timeout=60.0, or_failed=False):
    return control.stop(worker, "shop", Deadline("shop", timeout), or_failed=or_failed)


def test_a_stop_that_is_followed_is_asked_for_once():
    worker = Worker([(STOPPED, "")])
    assert stopped(worker).stopped
    assert worker.calls == ["stop"]


@pytest.mark.parametrize("task", [RUNNING, "UNASSIGNED"])
def test_a_task_that_goes_on_being_shown_is_cleared_by_another_stop(task):
    worker = Worker([(STOPPED, task), (STOPPED, task), (STOPPED, "")])
    assert stopped(worker).stopped
    assert worker.calls == ["stop", "stop", "stop"]


def test_a_connector_that_did_not_hear_of_the_stop_is_started_anew_to_read_of_it():
    worker = Worker([(RUNNING, RUNNING), (STOPPED, "")])
    assert stopped(worker).stopped
    assert worker.calls == ["stop", "stop", "restart"]


class Broken(Worker):
    """Its connector's own start FAILED, and it does nothing until it is started anew."""

    def status(self, name):
        return ConnectorStatus(name, STOPPED if "restart" in self.calls else FAILED, "here", ())


def test_a_connector_whose_own_start_failed_is_started_anew_at_once_to_be_stopped():
    worker = Broken([])
    assert stopped(worker).stopped
    assert worker.calls == ["stop", "restart"]


def test_one_without_a_status_is_only_asked_again():
    worker = Worker([None, (STOPPED, "")])
    assert stopped(worker).stopped
    assert worker.calls == ["stop", "stop"]


def test_a_deadline_says_what_was_seen_last():
    with pytest.raises(ConnectorTimeout, match="not stopped after 0 s: STOPPED, task 0 UNASSIGNED"):
        stopped(Worker([(STOPPED, "UNASSIGNED")]), timeout=0.2)
    with pytest.raises(ConnectorTimeout, match="not stopped after 0 s: no status yet"):
        stopped(Worker([None]), timeout=0.2)


def test_one_that_failed_at_its_start_counts_as_stopped_for_those_who_forget_it():
    worker = Worker([(FAILED, "")])
    assert stopped(worker, or_failed=True).state == FAILED
    with pytest.raises(ConnectorTimeout, match="FAILED, no task"):
        stopped(worker, timeout=0.1)


def test_offsets_are_forgotten_after_a_stop_that_took_two_requests():
    worker = Worker([(STOPPED, RUNNING), (STOPPED, "")])
    control.reset_offsets(worker, "shop")
    assert worker.calls == ["stop", "stop", "forget"]


URL = "http://connect:8083"


@pytest.fixture
def client() -> Iterator[ConnectClient]:
    with ConnectClient(URL, timeout=1.0, patience=5.0) as client:
        yield client


def test_a_deletion_whose_answer_was_lost_was_one(client: ConnectClient) -> None:
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/connectors", json=["shop"])
        answers.delete(f"{URL}/connectors/shop", body=requests.ConnectionError("reset"))
        gone = {"error_code": 404, "message": "Connector shop not found"}
        answers.delete(f"{URL}/connectors/shop", json=gone, status=404)
        answers.get(f"{URL}/connectors", json=[])
        assert delete_connector(client, "shop")


def test_there_was_none_where_there_was_none(client: ConnectClient) -> None:
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/connectors", json=["other"])
        assert not delete_connector(client, "shop")


def test_a_state_that_is_none_is_refused_before_anybody_is_asked(client: ConnectClient) -> None:
    with pytest.raises(InvalidConnector, match="cannot be brought to 'running'") as refused:
        set_connector_state(client, "shop", "running")  # type: ignore[arg-type]
    assert "RUNNING, PAUSED, STOPPED" in refused.value.remedy


def test_a_worker_that_is_starting_is_waited_for_longer_than_one_request_is() -> None:
    with responses.RequestsMock() as answers, ConnectClient(URL, patience=0.1) as hasty:
        for _ in range(4):
            answers.get(f"{URL}/health", body=requests.ConnectionError("refused"))
        answers.get(f"{URL}/health", json={"status": "healthy", "message": "Worker has completed startup"})
        wait_for_worker(hasty, timeout=60.0)


def test_the_wait_for_a_worker_ends(client: ConnectClient) -> None:
    began = time.monotonic()
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/health", body=requests.ConnectionError("refused"))
        with pytest.raises(ConnectUnavailable, match="not ready"):
            wait_for_worker(client, timeout=0.3)
    assert time.monotonic() - began < client.patience


def test_an_outbox_is_not_applied_to_a_topic_that_another_store_fills(client, monkeypatch):
    declared = outbox()
    asked: list[object] = []

    def refuse(*given: object) -> None:
        asked.extend(given)
        raise ForeignRecord("'order' ends with a record that is no event of this store", remedy="another topic")

    monkeypatch.setattr("cdc.operating.control.require_own_topics", refuse)
    monkeypatch.setattr(OutboxSource, "check_source", lambda self, engine: None)
    settings, source = Settings.for_broker("127.0.0.1:1"), create_engine("sqlite://")
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/health", json={"status": "healthy", "message": "Worker has completed startup"})
        with pytest.raises(ForeignRecord, match="no event of this store"):
            apply_connector(client, declared, source=source, settings=settings)
        assert {call.request.method for call in answers.calls} == {"GET"}
    assert asked == [settings, declared, source]


class Restarted:
    """Its connector runs; its task comes after so many restarts."""

    def __init__(self, *, after):
        self._after = after
        self.restarts = 0

    def status(self, name):
        tasks = (TaskStatus(0, RUNNING, "here", ""),) if self.restarts >= self._after else ()
        return ConnectorStatus(name, RUNNING, "here", tasks)

    def restart(self, name):
        self.restarts += 1


def waited(worker, *, timeout, may_be_idle=False):
    watching = Watch(
        worker, "shop", until="running", source=None, deadline=Deadline("shop", timeout), may_be_idle=may_be_idle
    )
    return watching.until_there((), content_after=0)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_connector_that_runs_without_a_task_is_restarted_until_it_has_one(monkeypatch, after):
    monkeypatch.setattr(control, "TASKLESS_SECONDS", 0.05)
    worker = Restarted(after=after)
    assert waited(worker, timeout=60).running
    assert worker.restarts == after


def test_one_that_has_nothing_to_do_yet_is_waited_for_a_little_and_left_alone(monkeypatch):
    monkeypatch.setattr(control, "CONTENT_SECONDS", 0.05)
    worker = Restarted(after=1)
    assert waited(worker, timeout=60, may_be_idle=True).tasks == ()
    assert worker.restarts == 0


def test_one_whose_tasks_are_only_late_is_left_alone():
    worker = Restarted(after=1)
    with pytest.raises(ConnectorTimeout, match="RUNNING, no task"):
        waited(worker, timeout=0.3)
    assert worker.restarts == 0
