"""A moment that no event can hold is refused as a constant of a predicate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pytest

from projections import field
from projections.declaring.predicates import Comparison
from projections.errors import InvalidPredicate

EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (datetime(1, 1, 1, tzinfo=EAST), "outside of the years 1 to 9999"),
        (datetime.max.replace(tzinfo=WEST), "outside of the years 1 to 9999"),
        (pd.Timestamp("2026-01-01 00:00:00.000000001", tz="UTC"), "nanoseconds"),
    ],
)
@pytest.mark.parametrize(
    "compare", [lambda f, m: f == m, lambda f, m: f < m, lambda f, m: f.is_in([m])], ids=["==", "<", "is_in"]
)
def test_a_moment_that_no_event_can_hold_is_refused(compare: Any, moment: datetime, words: str) -> None:
    with pytest.raises(InvalidPredicate, match=words):
        compare(field("at"), moment)


@pytest.mark.parametrize("moment", [datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=EAST)])
def test_the_first_and_the_last_moments_are_constants(moment: datetime) -> None:
    compared = field("at") == moment
    assert isinstance(compared, Comparison)
    assert compared.value == moment
