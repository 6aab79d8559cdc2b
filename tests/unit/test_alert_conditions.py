"""Each alert fires on the samples it is for, and is silent on those next to them."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.promql import Series, evaluate
from tests.rows import each_row

NOW = 1_000_000.0
ALERTS = Path(__file__).parents[2] / "factfold" / "watching" / "files" / "factfold-alerts.yaml"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
BY_RUNNER = {"runner": "relay", "name": "store"}
BY_TOPIC = {"group": "shop", "topic": "order"}
BY_STORE = {"store": "shop"}
BY_SLOT = {"connector": "rows", "slot": "rows"}


def now(metric, value, **labels):
    return Series(metric if metric == "up" else f"factfold_{metric}", labels, [(NOW - 1, value)])


def rising(metric, by, **labels):
    """A counter that grew so much in the last ten minutes."""
    return Series(f"factfold_{metric}", labels, [(NOW - 600, 100.0), (NOW - 1, 100.0 + by)])


def waiting(offsets, *, committed, paused=0.0):
    """A group with two topics, so many offsets that wait, and the age of its last batch."""
    return [
        now("view_lag_offsets", offsets, **BY_TOPIC),
        now("view_lag_offsets", 0.0, group="shop", topic="item"),
        now("view_progress_timestamp_seconds", NOW - committed, group="shop"),
        now("view_is_paused", paused, group="shop"),
    ]


def fresh(*, newest, applied):
    """Ages of the newest event of a store's category and of the newest that the views applied."""
    return [
        now("store_newest_event_timestamp_seconds", NOW - newest, store="shop", category="order", topic="order"),
        now("view_applied_commit_timestamp_seconds", NOW - applied, **BY_TOPIC),
        now("view_applied_commit_timestamp_seconds", NOW - 9_000, group="shop", topic="captured"),
    ]


def steady(metric, *values, **labels):
    """A gauge over the last ten minutes."""
    step = 600 / len(values)
    return Series(f"factfold_{metric}", labels, [(NOW - 599 + step * at, value) for at, value in enumerate(values)])


# Alert, a metric and its labels, a value on which the alert fires, and one on which it does not.
VALUES = [
    ("FactfoldRunnerDown", now, "up", {"job": "factfold", "instance": "a"}, 0, 1),
    ("FactfoldRunnerRestarts", rising, "runner_restarts_total", BY_RUNNER, 4, 3),
    ("FactfoldLookFails", rising, "runner_look_failures_total", BY_RUNNER, 11, 1),
    ("FactfoldProjectionLag", now, "projection_lag_seconds", {"group": "shop"}, 61, 59),
    ("FactfoldSubscriptionLag", now, "subscription_lag_seconds", BY_TOPIC, 61, 0),
    ("FactfoldRelayLag", now, "relay_lag_seconds", {"topic": "order"}, 61, 1),
    ("FactfoldScheduledOverdue", now, "scheduled_overdue_seconds", BY_STORE, 61, 1),
    ("FactfoldArchiveStale", now, "archive_round_timestamp_seconds", {"name": "lake"}, NOW - 3_700, NOW - 60),
    ("FactfoldDeadLetters", now, "dead_letters_open", {"home": "d", **BY_TOPIC}, 1, 0),
    ("FactfoldBadRecords", rising, "projection_bad_records_total", {"group": "shop", "kind": "json"}, 1, 0),
    ("FactfoldProcessTroubled", now, "process_troubled_instances", {"store": "s", "process": "p"}, 1, 0),
    ("FactfoldScheduledSetAside", now, "scheduled_set_aside", BY_STORE, 1, 0),
    ("FactfoldVerifyFailed", now, "verify_is_equal", {"group": "shop", "view": "v"}, 0, 1),
    ("FactfoldVerifyOld", now, "verify_timestamp_seconds", {"group": "shop"}, NOW - 9 * 86_400, NOW - 7 * 86_400),
    ("FactfoldCompareFailed", now, "compare_is_equal", {"table": "t", "state": "s"}, 0, 1),
    ("FactfoldFenceHeld", now, "store_fence_age_seconds", BY_STORE, 61, 0),
    ("FactfoldConnectorNotWell", now, "connector_is_well", {"connector": "rows"}, 0, 1),
    ("FactfoldConnectorGivenUp", now, "connector_is_given_up", {"connector": "rows"}, 1, 0),
    ("FactfoldSlotLarge", now, "connector_slot_retained_bytes", BY_SLOT, 11 * 2**30, 9 * 2**30),
    ("FactfoldSlotNotRead", now, "connector_slot_is_active", BY_SLOT, 0, 1),
    ("FactfoldSlotLost", now, "connector_slot_is_lost", BY_SLOT, 1, 0),
]

# Alert, samples on which it fires, samples on which it does not.
CASES = [
    *(
        (alert, [sample(metric, fires, **labels)], [sample(metric, silent, **labels)])
        for alert, sample, metric, labels, fires, silent in VALUES
    ),
    (
        "FactfoldRunnerDown",
        [now("up", 0, job="factfold-views", instance="a")],
        [now("up", 0, job="node", instance="a")],
    ),
    ("FactfoldViewStale", fresh(newest=10, applied=200), fresh(newest=10, applied=100)),
    ("FactfoldViewStale", fresh(newest=10, applied=200), fresh(newest=8_000, applied=8_000)),
    ("FactfoldViewNotFollowed", waiting(5, committed=400), waiting(5, committed=200)),
    ("FactfoldViewNotFollowed", waiting(5, committed=400), waiting(0, committed=400)),
    ("FactfoldViewNotFollowed", waiting(5, committed=400), waiting(5, committed=400, paused=1.0)),
    (
        "FactfoldRelayWithoutLeader",
        [now("relay_is_leader", 0, job="f", instance="a"), now("relay_is_leader", 0, job="f", instance="b")],
        [now("relay_is_leader", 0, job="f", instance="a"), now("relay_is_leader", 1, job="f", instance="b")],
    ),
    (
        "FactfoldBranchesLag",
        [steady("branches_lag_offsets", 5, 6, 7, topic="payment")],
        [steady("branches_lag_offsets", 500, 300, 200, topic="payment")],
    ),
    (
        "FactfoldBranchesLag",
        [steady("branches_lag_offsets", 5, 5, 5, topic="payment")],
        [steady("branches_lag_offsets", 5, 0, 7, topic="payment")],
    ),
    (
        "FactfoldDeadLettersGrow",
        [rising("subscription_records_total", 11, group="g", outcome="dead")],
        [rising("subscription_records_total", 11, group="g", outcome="handled")],
    ),
]


def test_every_alert_has_samples():
    assert {alert for alert, _, _ in CASES} == set(RULES)


@each_row(("alert", "fires", "silent"), CASES, ids=[alert for alert, _, _ in CASES])
def test_an_alert_fires_on_its_samples_and_on_no_others(alert, fires, silent):
    expression = RULES[alert]["expr"]
    assert evaluate(expression, fires, at=NOW)
    assert evaluate(expression, silent, at=NOW) == {}
    assert evaluate(expression, [], at=NOW) == {}


@each_row(("alert", "fires"), [(alert, fires) for alert, fires, _ in CASES])
def test_an_alert_that_fires_has_the_labels_that_its_words_show(alert, fires):
    found = evaluate(RULES[alert]["expr"], fires, at=NOW)
    words = str(RULES[alert]["annotations"])
    for labels in found:
        for name in {part.split("}}")[0].strip().split(" ")[0] for part in words.split("$labels.")[1:]}:
            assert name in dict(labels), f"{name} of {alert}"
