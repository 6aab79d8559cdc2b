"""The flights' road against pandas, as make demo-flights takes it: fewer flights, on the session's servers."""

from __future__ import annotations

import pytest

from sample_app.flights.demo import tell
from sample_app.flights.source import read_flights
from sample_app.story import Story

FLIGHTS = 2_500


@pytest.mark.faults
def test_the_views_equal_pandas_while_corrections_keep_coming(stack, spark, connectors_go):
    story = Story("flights")
    tell(story, stack.info, read_flights(FLIGHTS), rounds=2)
    facts = story.facts
    assert facts["digest"] == facts["recomputed_digest"] == facts["pandas_digest"]
    assert facts["rows"] == facts["pandas_rows"] > FLIGHTS * 0.5  # the flights of a deleted airline are out
    weather = facts["views"]["departure_weather"]
    assert weather["digest"] == weather["recomputed_digest"] == weather["pandas_digest"]
    assert weather["rows"] == weather["pandas_rows"] == FLIGHTS
    assert facts["events"] > FLIGHTS * 2.5
    assert facts["corrections"] > 40
