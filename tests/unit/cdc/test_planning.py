"""What would change is told by setting, and no secret with it; steps of a preparation; which database is whose."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from sqlalchemy import create_engine, make_url

from cdc import plan_connectors
from cdc.connect.status import FAILED, PAUSED, RUNNING, STOPPED, ConnectorInfo, ConnectorStatus, TaskStatus
from cdc.errors import SourceNotReady
from cdc.operating.planning import MASK, SettingChange, differences, unread
from cdc.preparing.steps import PreparedStep, Step, run_steps
from cdc.source.catalogue import not_of
from tests.unit.cdc.declared import heartbeat, postgres

HEARTS = heartbeat(name="hearts")


class Cluster:
    """One connector, as declared, in some state."""

    def __init__(self, state, *tasks):
        self._status = ConnectorStatus("hearts", state, "here", tuple(TaskStatus(0, task, "here") for task in tasks))

    def overview(self):
        info = ConnectorInfo("hearts", "source", {"name": "hearts", **HEARTS.config()}, ())
        return {"hearts": (info, self._status)}


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


@dataclass
class Box(Step):
    """A step that needs the box before it, and makes its own."""

    target: str
    boxes: list[str]
    needs: str = ""
    denied: bool = False
    done: str = field(default="")
    name: str = "box"

    def look(self) -> str:
        if self.needs and self.needs not in self.boxes:
            raise SourceNotReady(f"there is no {self.needs}", remedy="make it")
        return "" if self.target in self.boxes else "a box"

    def make(self) -> None:
        if self.denied:
            raise SourceNotReady("denied", remedy="ask an administrator")
        self.boxes.append(self.target)

    def sql(self) -> tuple[str, ...]:
        return (f"CREATE BOX {self.target}",)


def run(*steps: Step, dry_run: bool = False) -> list[tuple[str, str]]:
    seen: list[PreparedStep] = []
    try:
        run_steps(steps, on_step=seen.append, dry_run=dry_run)
    except SourceNotReady:
        assert seen[-1].outcome == "failed"
    return [(step.target, step.outcome) for step in seen]


def test_what_is_missing_is_made_in_order_and_what_is_present_stays() -> None:
    boxes = ["b"]
    steps = (Box("a", boxes), Box("b", boxes, needs="a"), Box("c", boxes, needs="a"))
    assert run(*steps) == [("a", "made"), ("b", "present"), ("c", "made")]
    assert run(*steps) == [("a", "present"), ("b", "present"), ("c", "present")]


def test_a_dry_run_changes_nothing_and_leaves_open_what_it_cannot_see_yet() -> None:
    boxes: list[str] = []
    steps = (Box("a", boxes), Box("b", boxes, needs="a"))
    assert run(*steps, dry_run=True) == [("a", "missing"), ("b", "unknown")]
    assert boxes == []


def test_a_dry_run_says_what_would_fail_and_looks_at_the_rest() -> None:
    boxes: list[str] = []
    assert run(Box("b", boxes, needs="a"), Box("c", boxes), dry_run=True) == [("b", "failed"), ("c", "missing")]


def test_a_run_stops_at_the_first_failure_with_the_sql_of_the_step() -> None:
    boxes: list[str] = []
    seen: list[PreparedStep] = []
    with pytest.raises(SourceNotReady, match="denied"):
        run_steps([Box("a", boxes, denied=True), Box("b", boxes)], on_step=seen.append, dry_run=False)
    assert [(step.target, step.detail, step.sql) for step in seen] == [("a", "a box", ("CREATE BOX a",))]
    assert boxes == []


def test_a_step_that_was_done_has_no_sql() -> None:
    seen: list[PreparedStep] = []
    run_steps([Box("a", [], done="a large box")], on_step=seen.append, dry_run=False)
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
