"""The dashboard and the alert rules name metrics that are exported, with labels that these have."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import promql_parser
import pytest
import yaml

from docs.metrics_dashboard import FILE, text
from docs.metrics_table import families, served_at, table
from eventstore.metrics.families import Kind
from tests.rows import each_row
from tests.unit.test_named_commands import unknown_commands

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
