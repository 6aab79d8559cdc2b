"""The shop's road, from a command to a joined view, as make demo plays it: smaller, on the session's servers."""

from __future__ import annotations

from sample_app.demo import Sizes, tell
from sample_app.story import Story


def test_commands_become_a_joined_view_that_equals_its_recomputation(stack, spark):
    story = Story("shop")
    tell(story, stack.info, Sizes(customers=20, articles=3, first_orders=150, live_orders=30))
    view = story.facts["views"]["order_details"]
    assert view["rows"] == story.facts["events"]["order.placed"] > 50
    assert view["digest"] == view["recomputed_digest"]
    assert story.facts["commands"]["refused"]["out of stock"]
    latency = story.facts["latency_ms"]
    assert 0 < latency["topic"]["p50"] <= latency["view"]["p50"] <= latency["view"]["p99"]
