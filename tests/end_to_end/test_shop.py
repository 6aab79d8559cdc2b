"""The shop's road, from a command to views and reactions, as make demo plays it: smaller, on the session's servers."""

from __future__ import annotations

import pytest

from sample_app.demo import Sizes, tell
from sample_app.story import Story


@pytest.mark.timeout(540)  # the whole shop with all its servers
def test_commands_become_views_that_equal_their_recomputation_and_payments_are_reacted_to_once(
    stack, spark, connectors_go
):
    story = Story("shop")
    tell(story, stack.info, Sizes(customers=20, articles=3, first_orders=150, live_orders=30, sessions=30))
    views, events, branches = (story.facts[name] for name in ("views", "events", "branches"))
    assert views["order_details"]["rows"] == events["order.placed"] > 50
    assert views["payment_risk"]["rows"] == events["payment.received"] > 50
    rates = story.facts["search_ctr"]
    assert sum(rate["searches"] for rate in rates) == events["browsing.searched"] > 30
    assert events["browsing.clicked"] > sum(rate["clicks"] for rate in rates) > 15  # some come after ten minutes
    assert all(0 < rate["click_through_rate"] < 1 for rate in rates)
    tried = [found for found in story.facts["card_tests"] if found["customer_id"] == 20]
    assert [(found["tried"], found["amount"]) for found in tried] == [(6, 900)]
    assert views["card_tests"]["rows"] >= 1
    for view in views.values():
        assert view["digest"] == view["recomputed_digest"]
    assert story.facts["compared"] == {"public.customers": {"rows": 20, "equal": True}}
    assert branches["suspicious"] + branches["validated"] == events["payment.received"]
    assert branches["dead-letter"] == 0
    groups = story.facts["subscriber"]["groups"]
    assert groups["fraud-remediation"]["handled"] == branches["suspicious"] > 10
    assert events["order.held"] + story.facts["cases"].get("nothing to hold", 0) == branches["suspicious"]
    assert sum(story.facts["cases"].values()) == branches["suspicious"]
    assert story.facts["cases"]["released"] == events["order.released"]
    assert groups["shipping"]["handled"] == events["order.shipped"]
    assert groups["receipts"]["handled"] == branches["validated"]
    orders_that_end_right_whatever_happens_to_them(story.facts["fulfilment"], events)
    dead = story.facts["dead_letters"]
    (jam,) = dead["causes"]
    assert (jam["error"], jam["pattern"]) == ("PrinterJammed", "paper jam at order …")
    assert (dead["replayed"], dead["left"]) == (jam["count"], 0)
    assert jam["count"] > 0
    names = [line.split()[0] for line in story.facts["trace"]]
    assert names[:2] == ["order.place", "order.placed"]
    ended = names.index("timer.payment")
    assert names[ended:] == [
        "timer.payment", "process.stepped", "inventory.release", "inventory.released",
        "process.stepped", "order.cancel", "order.cancelled", "process.stepped",
    ]  # fmt: skip
    for waited in story.facts["latency_ms"].values():
        assert 0 < waited["p50"] <= waited["p99"]


def orders_that_end_right_whatever_happens_to_them(fulfilment, events):
    assert fulfilment["mistakes"] == []
    assert fulfilment["orders"] == events["order.placed"] == events["order.shipped"] + events["order.cancelled"]
    assert fulfilment["reserved"] == fulfilment["held_by_orders"] > 0
    assert fulfilment["refunds"] == events["payment.received"] - events["order.shipped"] > 0
    assert fulfilment["processes"]["done"] == fulfilment["shipped"] == events["order.shipped"] > 20
    assert fulfilment["processes"]["compensated"] == events["order.cancelled"]
    assert {"not paid in time", "changed my mind", "out of stock", "suspicious payment"} == set(fulfilment["cancelled"])
    assert fulfilment["timers"] >= fulfilment["cancelled"]["not paid in time"] > 5
