"""What a store must do in a caller's transaction; a part of the conformance suite, for stores in a database."""

# ruff: noqa: S101, D102  # assertions are what this module is for, and its names are the sentences

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol
from uuid import uuid4

import pytest

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import WrongExpectedVersion
from eventstore.event_types import event
from eventstore.identifiers import ANY, NO_STREAM
from eventstore.messages import NewEvent
from eventstore.store import EventStore, StreamAppend, TransactionalStore

Begin = Callable[[], AbstractContextManager[Any]]


class Invoice(Aggregate):
    """The aggregate this part writes with."""

    @event
    class Issued:
        """A number is enough."""

        number: int


class JoiningStore(EventStore, TransactionalStore, Protocol):
    """An event store that takes part in transactions of others."""


class HandlerFailed(Exception):
    """What ends a transaction of these tests without a commit."""


def _issued(number: int = 1) -> Invoice.Issued:
    return Invoice.Issued(number=number)


def _new() -> str:
    return f"invoice-{uuid4()}"


class TransactionConformance:
    """A part of the suite; `store` must be ready for use, and `begin` open a transaction of a caller in its database.

    What `begin` returns is a context manager of a connection, committed at its end and rolled back by an error.
    """

    def test_what_is_appended_is_seen_within_at_once_and_by_others_after_the_commit(
        self, store: JoiningStore, begin: Begin
    ) -> None:
        stream = _new()
        with begin() as transaction:
            streams = store.within(transaction)
            streams.append(stream, [_issued(1)], expected=NO_STREAM)
            streams.append_batch([StreamAppend(stream, [_issued(2)], 0)])
            assert [recorded.data["number"] for recorded in streams.read_stream(stream)] == [1, 2]
            assert (streams.head(stream), store.head(stream)) == (1, None)
        assert [recorded.data["number"] for recorded in store.read_stream(stream)] == [1, 2]

    def test_what_is_rolled_back_was_never_there(self, store: JoiningStore, begin: Begin) -> None:
        stream = _new()
        with pytest.raises(HandlerFailed), begin() as transaction:  # noqa: PT012
            store.within(transaction).append(stream, [_issued()], expected=NO_STREAM)
            raise HandlerFailed
        assert (store.head(stream), list(store.read_stream(stream))) == (None, [])
        assert store.append(stream, [_issued()], expected=NO_STREAM).version == 0

    def test_a_refusal_by_what_is_seen_leaves_the_transaction_usable(self, store: JoiningStore, begin: Begin) -> None:
        taken, other = _new(), _new()
        store.append(taken, [_issued()], expected=NO_STREAM)
        with begin() as transaction:
            streams = store.within(transaction)
            with pytest.raises(WrongExpectedVersion) as refused:
                streams.append(taken, [_issued()], expected=NO_STREAM)
            streams.append(other, [_issued()], expected=NO_STREAM)
        assert (refused.value.actual, store.head(taken), store.head(other)) == (0, 0, 0)

    def test_a_repetition_within_gets_the_result_of_the_first(self, store: JoiningStore, begin: Begin) -> None:
        stream, events = _new(), [NewEvent(_issued(), id=uuid4())]
        with begin() as transaction:
            streams = store.within(transaction)
            first = streams.append(stream, events, expected=NO_STREAM)
            again = streams.append(stream, events, expected=ANY)
            assert (again, first.repeated, again.repeated) == (first, False, True)
            event = streams.find(first.ids[0])
        assert event is not None
        assert (event.stream, store.append(stream, events, expected=ANY)) == (stream, first)
