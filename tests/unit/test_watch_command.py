"""What `factfold watch` measures, and the rules and panels that look at it."""

from __future__ import annotations

import inspect
import json
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import promql_parser
import pytest
import sqlalchemy as sa
import yaml

from docs.metrics_dashboard import FILE, text
from docs.metrics_table import families, served_at, table
from eventstore import ANY, NewEvent, subscription
from eventstore.metrics.families import Kind
from eventstore.processes.administration import Processes
from eventstore.store import FenceStatus
from factfold.watching.metrics import Letters, WatchMetrics, _topic_and_group, look_at_store
from tests.commands import factfold
from tests.conformance.process_shop import Reminder, Shop
from tests.ledger import Payment
from tests.rows import each_row
from tests.scraping import scraped
from tests.unit.eventstore.handlers import deliver_stored
from tests.unit.test_named_commands import unknown_commands
from tests.waiting import wait_until


@pytest.fixture
def metrics():
    return WatchMetrics()


def sampled(metrics, family, **labels):
    return metrics.registry.get_sample_value(f"factfold_{family}", labels)


def test_the_newest_event_of_each_category_is_shown_with_its_topic(store, metrics):
    store.append("payment-1", [Payment.Received(amount=1)], expected=ANY)
    look_at_store(metrics, store)
    name = store.engine.url.database
    (event,) = store.read_stream("payment-1")
    found = sampled(metrics, "store_newest_event_timestamp_seconds", store=name, category="payment", topic="payment")
    assert found == pytest.approx(event.time.timestamp())


def test_an_open_fence_has_no_age_where_nobody_writes(store, metrics):
    look_at_store(metrics, store)
    name = store.engine.url.database
    assert sampled(metrics, "store_fence_age_seconds", store=name) == 0
    assert sampled(metrics, "store_fence_events", store=name) == 0


def test_a_fence_that_is_held_has_an_age_and_hides_events(store, metrics, monkeypatch):
    monkeypatch.setattr(store, "fence", lambda: FenceStatus(3, 2.5, "slow import"))
    look_at_store(metrics, store)
    name = store.engine.url.database
    assert sampled(metrics, "store_fence_age_seconds", store=name) == 2.5
    assert sampled(metrics, "store_fence_events", store=name) == 3


def test_what_is_overdue_grows_and_what_failed_too_often_is_counted(store, metrics):
    shop, name = Shop(store, Reminder), store.engine.url.database
    shop.now = datetime.now(UTC) - timedelta(minutes=5)
    shop.place("o1")
    shop.deliver()
    shop.insert_timer("o1", "remind")
    look_at_store(metrics, store)
    assert sampled(metrics, "scheduled_overdue_seconds", store=name) == pytest.approx(300, abs=30)
    assert sampled(metrics, "process_instances", store=name, process="reminder", status="running") == 1
    assert sampled(metrics, "process_troubled_instances", store=name, process="reminder") == 0
    assert sampled(metrics, "scheduled_set_aside", store=name) == 0


def test_a_problem_of_an_instance_is_counted(store, metrics):
    shop, name = Shop(store, Reminder), store.engine.url.database
    shop.place("o1")
    shop.deliver()
    with store.engine.begin() as tx:
        tx.execute(sa.text("UPDATE factfold_processes SET problem = 'no room'"))
    look_at_store(metrics, store)
    assert Processes(store).stats()[0].troubled == 1
    assert sampled(metrics, "process_troubled_instances", store=name, process="reminder") == 1


def test_dead_letters_of_a_store_are_shown_until_they_are_settled(store, metrics):
    @subscription("payment", group="books", attempts=1)
    def fails(event: Payment.Received, tx: sa.Connection) -> None:
        raise ValueError("no room")

    store.append("payment-1", [NewEvent(Payment.Received(amount=1))], expected=ANY)
    deliver_stored(store, fails, category="payment")
    labels = {"home": store.engine.url.database, "topic": "payment", "group": "books"}
    Letters(metrics).look_at_store(store)
    assert sampled(metrics, "dead_letters_open", **labels) == 1
    discarded = factfold("dlq", "discard", "payment", "books", "--inbox-url", str(store.engine.url), "--all", "--yes")
    assert discarded.exit_code == 0, discarded.output
    Letters(metrics).look_at_store(store)
    assert sampled(metrics, "dead_letters_open", **labels) is None


@pytest.mark.parametrize(
    ("home", "topic", "group"),
    [
        ("shop.order.dead-letter", "shop.order", ""),
        ("shop.order.books.dead-letter", "shop.order", "books"),
        ("shop.order.books.v2.dead-letter", "shop.order", "books.v2"),
        ("payment.dead-letter", "payment", ""),
        ("payment.books.dead-letter", "payment", "books"),
        ("deleted.books.dead-letter", "deleted", "books"),
        ("deleted.dead-letter", "deleted", ""),
    ],
)
def test_the_topic_of_dead_letters_is_one_that_exists(home, topic, group):
    topics = {"shop.order", "shop.orders", "payment", home, f"{home}.settled"}
    assert _topic_and_group(home, topics) == (topic, group)


def test_the_files_for_prometheus_and_grafana_are_written(tmp_path):
    folder = tmp_path / "new" / "watching"
    done = factfold("watch", "export", str(folder), "--json")
    written = [Path(file) for file in json.loads(done.output)["files"]]
    assert [file.name for file in written] == ["factfold-alerts.yaml", "factfold-dashboard.json"]
    assert all(file.read_text(encoding="utf-8") for file in written)


def test_the_command_watches_until_it_is_stopped(store):
    store.append("payment-1", [Payment.Received(amount=1)], expected=ANY)
    name = store.engine.url.database
    arguments = ["watch", "run", "--store-url", str(store.engine.url), "--metrics-port", "0", "--json"]
    with subprocess.Popen([sys.executable, "-m", "factfold", *arguments], stdout=subprocess.PIPE) as watch:
        try:
            told = json.loads(watch.stdout.readline())
            shown = ("factfold_store_newest_event_timestamp_seconds", "payment", name, "payment")
            wait_until(lambda: shown in scraped(told["port"]), what=lambda: f"{shown} in {scraped(told['port'])}")
            assert scraped(told["port"])["factfold_runner_look_failures_total", "watch", "watch"] == 0
        finally:
            watch.send_signal(signal.SIGTERM)
        assert watch.wait(30) == 0


def test_nothing_to_watch_is_refused():
    done = factfold("watch", "run", "--no-kafka")
    assert done.exit_code == 2
    assert "--store-url" in done.output


# ---- the dashboard and the alert rules name metrics that are exported, with labels that these have


ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "factfold" / "watching" / "files" / "factfold-alerts.yaml"
PAGE = ROOT / "docs" / "how-to" / "watch-in-production.md"

FAMILIES = families()
FOREIGN = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
METRIC = re.compile(r"\b(?:factfold_\w+|up|process_(?:resident|cpu)_\w+)\b")
GROUPED = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
MATCHED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")


def rules():
    loaded = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def queries():
    panels = json.loads(FILE.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


EXPRESSIONS = [*(rule["expr"] for rule in rules()), *queries()]


def family_of(metric):
    if metric in FAMILIES:
        return FAMILIES[metric]
    base = re.sub(r"_(bucket|sum|count)$", "", metric)
    assert base in FAMILIES, f"{metric} is not exported"
    assert FAMILIES[base].kind is Kind.HISTOGRAM
    return FAMILIES[base]


def own(expression):
    return [family_of(metric) for metric in METRIC.findall(expression) if metric not in FOREIGN]


def test_names_follow_the_rules_of_prometheus():
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"factfold_[a-z_]+", name)
        assert name.endswith("_total") == (family.kind is Kind.COUNTER), name
        assert not re.search(r"_(ms|millis|minutes|kb|mb)(_|$)", name), name
        assert family.help.endswith("."), name
        assert bool(family.bounds) == (family.kind is Kind.HISTOGRAM), name


def test_a_name_has_one_meaning_wherever_it_is_served():
    for metrics in served_at().values():
        for family in metrics.families:
            assert FAMILIES[family.name] is family


@each_row("command", served_at())
def test_what_is_declared_is_what_a_registry_exports(command):
    metrics = served_at()[command]
    named = {"self", "labels", "runner"} ^ set(inspect.signature(metrics.__init__).parameters)
    made = metrics(**{name: "shop" for name in named & {"group", "name", "topic"}})
    exported = {found.name + "_total" * (found.type == "counter") for found in made.registry.collect()}
    assert exported == {family.name for family in metrics.families}


@each_row("expression", EXPRESSIONS)
def test_each_query_names_metrics_that_are_exported_and_their_labels(expression):
    labels = {label for family in own(expression) for label in family.labels} | {"le", "job", "instance"}
    named = {label.strip() for part in GROUPED.findall(expression) for label in part.split(",") if label.strip()}
    assert named | set(MATCHED.findall(expression)) <= labels


@each_row("expression", EXPRESSIONS)
def test_each_counter_is_looked_at_by_its_increase(expression):
    for metric in METRIC.findall(expression):
        if metric.endswith(("_total", "_bucket")):
            assert re.search(rf"(rate|increase)\({metric}\b", expression), metric


@each_row("expression", EXPRESSIONS)
def test_each_query_parses(expression):
    promql_parser.parse(expression.replace("$__rate_interval", "1m"))


@each_row("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_alert_says_how_bad_it_is_and_what_to_do(rule):
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Factfold[A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["runbook"]


@each_row("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_alert_shows_labels_that_its_metrics_have(rule):
    shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    labels = {label for family in own(rule["expr"]) for label in family.labels} | {"job", "instance"}
    if grouped := re.search(r"^(?:max|sum|min) by \(([^)]*)\) \([^()]*\) [><=]", rule["expr"]):
        labels = {label.strip() for label in grouped.group(1).split(",")}
    assert shown <= labels


@each_row("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_runbook_names_commands_that_exist(rule):
    assert not list(unknown_commands(rule["annotations"]["runbook"]))


def test_alerts_have_names_of_their_own():
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "metric",
    [
        "factfold_projection_lag_seconds", "factfold_view_applied_commit_timestamp_seconds",
        "factfold_dead_letters_open", "factfold_connector_slot_retained_bytes", "factfold_store_fence_age_seconds",
        "factfold_verify_is_equal",
    ],
)  # fmt: skip
def test_there_is_an_alert_and_a_panel_for_what_matters_most(metric):
    assert any(metric in rule["expr"] for rule in rules())
    assert any(metric in expression for expression in queries())


def test_the_dashboard_is_what_the_program_writes():
    assert FILE.read_text(encoding="utf-8") == text(), "run: python -m docs.metrics_dashboard"


def test_the_panels_of_the_dashboard_do_not_overlap():
    taken = set()
    for panel in json.loads(FILE.read_text(encoding="utf-8"))["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_page_has_the_table_of_all_metrics():
    assert table() in PAGE.read_text(encoding="utf-8"), "paste: python -m docs.metrics_table"
