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


# Alert, samples on which it fires, samples on which it does not.
CASES = [
    (
        "FactfoldRunnerDown",
        [now("up", 0, job="factfold-views", instance="a")],
        [now("up", 0, job="node", instance="a")],
    ),
    ("FactfoldRunnerDown", [now("up", 0, job="factfold", instance="a")], [now("up", 1, job="factfold", instance="a")]),
    (
        "FactfoldRunnerRestarts",
        [rising("runner_restarts_total", 4, **BY_RUNNER)],
        [rising("runner_restarts_total", 3, **BY_RUNNER)],
    ),
    (
        "FactfoldLookFails",
        [rising("runner_look_failures_total", 11, **BY_RUNNER)],
        [rising("runner_look_failures_total", 1, **BY_RUNNER)],
    ),
    (
        "FactfoldProjectionLag",
        [now("projection_lag_seconds", 61, group="shop")],
        [now("projection_lag_seconds", 59, group="shop")],
    ),
    ("FactfoldViewStale", fresh(newest=10, applied=200), fresh(newest=10, applied=100)),
    ("FactfoldViewStale", fresh(newest=10, applied=200), fresh(newest=8_000, applied=8_000)),
    ("FactfoldViewNotFollowed", waiting(5, committed=400), waiting(5, committed=200)),
    ("FactfoldViewNotFollowed", waiting(5, committed=400), waiting(0, committed=400)),
    ("FactfoldViewNotFollowed", waiting(5, committed=400), waiting(5, committed=400, paused=1.0)),
    (
        "FactfoldSubscriptionLag",
        [now("subscription_lag_seconds", 61, **BY_TOPIC)],
        [now("subscription_lag_seconds", 0, **BY_TOPIC)],
    ),
    ("FactfoldRelayLag", [now("relay_lag_seconds", 61, topic="order")], [now("relay_lag_seconds", 1, topic="order")]),
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
        "FactfoldScheduledOverdue",
        [now("scheduled_overdue_seconds", 61, **BY_STORE)],
        [now("scheduled_overdue_seconds", 1, **BY_STORE)],
    ),
    (
        "FactfoldArchiveStale",
        [now("archive_round_timestamp_seconds", NOW - 3_700, name="lake")],
        [now("archive_round_timestamp_seconds", NOW - 60, name="lake")],
    ),
    (
        "FactfoldDeadLetters",
        [now("dead_letters_open", 1, home="d", **BY_TOPIC)],
        [now("dead_letters_open", 0, home="d", **BY_TOPIC)],
    ),
    (
        "FactfoldDeadLettersGrow",
        [rising("subscription_records_total", 11, group="g", outcome="dead")],
        [rising("subscription_records_total", 11, group="g", outcome="handled")],
    ),
    (
        "FactfoldBadRecords",
        [rising("projection_bad_records_total", 1, group="shop", kind="json")],
        [rising("projection_bad_records_total", 0, group="shop", kind="json")],
    ),
    (
        "FactfoldProcessTroubled",
        [now("process_troubled_instances", 1, store="s", process="p")],
        [now("process_troubled_instances", 0, store="s", process="p")],
    ),
    (
        "FactfoldScheduledSetAside",
        [now("scheduled_set_aside", 1, **BY_STORE)],
        [now("scheduled_set_aside", 0, **BY_STORE)],
    ),
    (
        "FactfoldVerifyFailed",
        [now("verify_is_equal", 0, group="shop", view="v")],
        [now("verify_is_equal", 1, group="shop", view="v")],
    ),
    (
        "FactfoldVerifyOld",
        [now("verify_timestamp_seconds", NOW - 9 * 86_400, group="shop")],
        [now("verify_timestamp_seconds", NOW - 7 * 86_400, group="shop")],
    ),
    (
        "FactfoldCompareFailed",
        [now("compare_is_equal", 0, table="t", state="s")],
        [now("compare_is_equal", 1, table="t", state="s")],
    ),
    (
        "FactfoldFenceHeld",
        [now("store_fence_age_seconds", 61, **BY_STORE)],
        [now("store_fence_age_seconds", 0, **BY_STORE)],
    ),
    (
        "FactfoldConnectorNotWell",
        [now("connector_is_well", 0, connector="rows")],
        [now("connector_is_well", 1, connector="rows")],
    ),
    (
        "FactfoldConnectorGivenUp",
        [now("connector_is_given_up", 1, connector="rows")],
        [now("connector_is_given_up", 0, connector="rows")],
    ),
    (
        "FactfoldSlotLarge",
        [now("connector_slot_retained_bytes", 11 * 2**30, **BY_SLOT)],
        [now("connector_slot_retained_bytes", 9 * 2**30, **BY_SLOT)],
    ),
    (
        "FactfoldSlotNotRead",
        [now("connector_slot_is_active", 0, **BY_SLOT)],
        [now("connector_slot_is_active", 1, **BY_SLOT)],
    ),
    ("FactfoldSlotLost", [now("connector_slot_is_lost", 1, **BY_SLOT)], [now("connector_slot_is_lost", 0, **BY_SLOT)]),
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
