"""Errors carry cause, remedy and place, and survive the way out of a worker process."""

from __future__ import annotations

import pickle

import pytest

from eventstore import errors
from eventstore.errors import FactfoldError, Refused, WrongExpectedVersion


def test_an_error_reads_as_cause_remedy_and_place() -> None:
    error = FactfoldError("the kettle is empty", remedy="fill it", place="kitchen")
    assert str(error) == "the kettle is empty\n  remedy: fill it\n  at: kitchen"
    assert str(FactfoldError("no", remedy="go")) == "no\n  remedy: go"


@pytest.mark.parametrize(
    "error",
    [
        FactfoldError("m", remedy="r", place="p"),
        WrongExpectedVersion("order-1", 3, None),
        Refused("too late", place="order-1"),
    ],
)
def test_an_error_survives_pickling(error: FactfoldError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_every_error_is_listed_and_drawn_in_the_tree() -> None:
    names = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert names == set(errors.__all__)
    assert all(name in (errors.__doc__ or "") for name in names)


def test_a_stale_version_says_where_the_stream_stands() -> None:
    assert "is at version 4, the writer expected 2" in str(WrongExpectedVersion("order-1", 2, 4))
    assert "has no events" in str(WrongExpectedVersion("order-1", 2, None))
