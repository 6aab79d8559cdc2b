"""The Grafana dashboard as data: `python -m docs.metrics_dashboard` writes `factfold-dashboard.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).parents[1] / "factfold" / "watching" / "files" / "factfold-dashboard.json"

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 8, 7  # three panels a row


def _most(histogram: str) -> str:
    """What 95 % of a histogram's values are at most, by group."""
    return f"histogram_quantile(0.95, sum by (group, le) (rate({histogram}_bucket[$__rate_interval])))"


# Title, unit, and expressions with their legends, row by row. Units are Grafana's names.
_ROWS: Final[dict[str, list[tuple[str, str, dict[str, str]]]]] = {
    "Overview": [
        ("Runners that do not answer", "short", {'count(up{job=~"factfold.*"} == 0) or vector(0)': "down"}),
        ("Open dead letters", "short", {"sum(factfold_dead_letters_open) or vector(0)": "open"}),
        ("Views that differ from their recomputation", "short", {
            "count(factfold_verify_is_equal == 0) or vector(0)": "differ",
        }),
        ("Age of the newest commit that views show", "s", {
            "time() - factfold_view_applied_commit_timestamp_seconds": "{{group}} {{topic}}",
        }),
        ("Lag in seconds", "s", {
            "factfold_projection_lag_seconds": "views {{group}}",
            "max by (group, topic) (factfold_subscription_lag_seconds)": "{{group}} {{topic}}",
            "max by (topic) (factfold_relay_lag_seconds)": "relay {{topic}}",
        }),
        ("Restarts after failures", "short", {
            "increase(factfold_runner_restarts_total[$__rate_interval])": "{{runner}} {{name}}",
        }),
    ],
    "Views": [
        ("Records applied", "ops", {"rate(factfold_projection_records_total[$__rate_interval])": "{{group}}"}),
        ("Seconds of a batch (95 %)", "s", {_most("factfold_projection_batch_seconds"): "{{group}}"}),
        ("Offsets that wait", "short", {
            "factfold_view_lag_offsets": "{{group}} {{topic}}",
            "factfold_branches_lag_offsets": "branches of {{topic}}",
            "factfold_archive_lag_offsets": "archive of {{topic}}",
        }),
        ("Time by step", "s", {"rate(factfold_projection_step_seconds_total[$__rate_interval])": "{{group}} {{step}}"}),
        ("Records set aside", "short", {
            "increase(factfold_projection_bad_records_total[$__rate_interval])": "{{group}} {{kind}}",
        }),
        ("Rows of view topics that wait", "short", {"factfold_projection_outbox_rows": "{{group}} {{topic}}"}),
    ],
    "Subscriptions, branches and processes": [
        ("Records by outcome", "ops", {
            "sum by (group, outcome) (rate(factfold_subscription_records_total[$__rate_interval]))":
                "{{group}} {{outcome}}",
        }),
        ("Seconds of a handler call (95 %)", "s", {_most("factfold_subscription_handler_seconds"): "{{group}}"}),
        ("Records by branch", "ops", {
            "rate(factfold_branches_records_total[$__rate_interval])": "{{topic}} {{branch}}",
        }),
        ("Commands and timers", "ops", {
            "rate(factfold_process_commands_total[$__rate_interval])": "commands",
            "rate(factfold_process_timers_total[$__rate_interval])": "timers",
            "rate(factfold_process_failures_total[$__rate_interval])": "failures",
        }),
        ("Overdue timers and commands", "s", {
            "factfold_scheduled_overdue_seconds": "{{store}}",
            "factfold_process_overdue_seconds": "runner {{instance}}",
        }),
        ("Instances by status", "short", {"factfold_process_instances": "{{process}} {{status}}"}),
    ],
    "Store, connectors and processes of the machine": [
        ("Age of the fence", "s", {"factfold_store_fence_age_seconds": "{{store}}"}),
        ("Log held for replication slots", "bytes", {
            "factfold_connector_slot_retained_bytes": "{{connector}} {{slot}}",
        }),
        ("Connectors that do not run", "short", {"factfold_connector_is_well == 0": "{{connector}}"}),
        ("Events published by the relay", "ops", {"rate(factfold_relay_events_total[$__rate_interval])": "events"}),
        ("Memory", "bytes", {'process_resident_memory_bytes{job=~"factfold.*"}': "{{instance}}"}),
        ("CPU", "short", {'rate(process_cpu_seconds_total{job=~"factfold.*"}[$__rate_interval])': "{{instance}}"}),
    ],
}  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "title": "Factfold",
        "uid": "factfold",
        "tags": ["factfold"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": _panels(),
    }


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in _ROWS.items():
        place = {"x": 0, "y": top, "w": 24, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place,
                       "panels": []})  # fmt: skip
        top += 1
        for number, (name, unit, queries) in enumerate(row):
            place = {"x": number % 3 * _WIDTH, "y": top + number // 3 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_panel(len(panels) + 1, name, unit, queries, place))
        top += -(-len(row) // 3) * _HEIGHT
    return panels


def _panel(number: int, title: str, unit: str, queries: dict[str, str], place: dict[str, int]) -> dict[str, Any]:
    single = "vector(0)" in next(iter(queries))
    red_from_one = {"mode": "absolute", "steps": [{"color": "green", "value": None}, {"color": "red", "value": 1}]}
    defaults = {"unit": unit, "min": 0, **({"thresholds": red_from_one} if single else {})}
    return {
        "id": number,
        "type": "stat" if single else "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if single else {"legend": {"showLegend": True}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(queries.items())
        ],
    }


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
