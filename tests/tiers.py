"""Which leg of a test that runs several times is run by make test; make faults runs all of them."""

from __future__ import annotations

import pytest


def first_of(argument: str, first: object, *others: object, indirect: bool = True) -> pytest.MarkDecorator:
    """Parametrize a test, and leave all values but the first to make faults."""
    left = [pytest.param(other, marks=pytest.mark.faults) for other in others]
    return pytest.mark.parametrize(argument, [first, *left], indirect=indirect)
