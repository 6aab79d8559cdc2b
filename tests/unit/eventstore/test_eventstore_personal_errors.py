"""What a personal field holds is told by no error, with all its causes, by no log and by no dead letter."""

from __future__ import annotations

import traceback
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from eventstore import (
    ANY,
    Aggregate,
    Digits,
    Dispatcher,
    MemoryEventStore,
    NewEvent,
    Personal,
    SqlEventStore,
    Subscriber,
    command,
    event,
    subscription,
)
from eventstore.aggregates.dispatcher import logged
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import InvalidEventData
from eventstore.fields.upcasting import Cast

SENTINEL, NUMBER = "Zuckmayer", 7_391_264_805
MOMENT = datetime(1896, 12, 27, 3, 17, 59)


class Plan(Enum):
    BASIC = "basic"
    NAMED = SENTINEL


@dataclass(frozen=True)
class Address:
    street: str
    since: date


class Person(Aggregate):
    @event
    class Met:
        name: Annotated[str | None, Personal()] = None
        born: Annotated[date | None, Personal()] = None
        seen: Annotated[datetime | None, Personal()] = None
        income: Annotated[Annotated[Decimal, Digits(4, 0)] | None, Personal()] = None
        number: Annotated[int | None, Personal()] = None
        plan: Annotated[Plan | None, Personal()] = None
        home: Annotated[Address | None, Personal()] = None
        tags: Annotated[list[str] | None, Personal()] = None
        either: Annotated[int | str | None, Personal()] = None

    @command
    def meet(self, **values: Any) -> None:
        self.emit(self.Met(**values))


MISFITS: list[dict[str, Any]] = [
    {"name": [SENTINEL]},
    {"name": f"{SENTINEL}\ud800"},
    {"born": SENTINEL},
    {"seen": MOMENT},
    {"income": Decimal(NUMBER)},
    {"income": SENTINEL},
    {"number": NUMBER * 10**12},
    {"number": SENTINEL},
    {"plan": SENTINEL},
    {"home": SENTINEL},
    {"home": Address(street=SENTINEL, since=SENTINEL)},  # type: ignore[arg-type]
    {"tags": [SENTINEL, 7]},
    {"either": [SENTINEL]},
    {"either": NUMBER * 10**12},
]


def tells(text: str) -> bool:
    return any(word in text for word in (SENTINEL, str(NUMBER), "1896", "Zuck"))


def everything_of(error: BaseException) -> str:
    """The error, its chain whether it is shown or not, and what a log would print of it."""
    chain, seen = [error], [error]
    while chain:
        found = chain.pop()
        chain += [one for one in (found.__cause__, found.__context__) if one is not None and one not in seen]
        seen += chain
    # The lines of source in a traceback are no data.
    shown = traceback.TracebackException.from_exception(error).format_exception_only()
    return "\n".join([*(f"{one!r} {one} {vars(one)}" for one in seen), *shown])


@pytest.mark.parametrize("values", MISFITS, ids=str)
def test_a_personal_value_that_does_not_fit_is_told_by_its_type_alone(values: dict[str, Any]) -> None:
    store = MemoryEventStore()
    with pytest.raises(InvalidEventData, match="does not fit field") as refused:
        store.append("person-1", [Person.Met(**values)], expected=ANY)
    (name,) = values
    assert refused.value.place == f"person.met.{name}"
    assert type(values[name]).__name__ in refused.value.message
    assert not tells(everything_of(refused.value))


def test_a_clear_value_that_does_not_fit_is_told_as_ever() -> None:
    class Shelf(Aggregate):
        @event
        class Filled:
            what: int
            by: Annotated[str | None, Personal()] = None

    with pytest.raises(InvalidEventData, match=f"{SENTINEL!r} of type str .* has type int"):
        MemoryEventStore().append("shelf-1", [Shelf.Filled(what=SENTINEL)], expected=ANY)  # type: ignore[arg-type]


def test_the_log_of_commands_tells_none_of_it() -> None:
    dispatcher = Dispatcher(MemoryEventStore(), middleware=[logged()])
    with capture_logs() as told:
        for values in [*MISFITS, {"name": SENTINEL}]:
            with suppress(InvalidEventData):
                dispatcher.send("1", Person.meet, **values)
    assert len(told) == len(MISFITS) + 1
    # Random digits and measured ones may spell a year.
    assert not tells(str([{k: v for k, v in entry.items() if k not in ("id", "seconds")} for entry in told]))


@pytest.fixture
def store(keyed_store: SqlEventStore) -> SqlEventStore:
    return keyed_store


class Former(Aggregate, category="person"):
    """As persons were written before: a member that is gone, a text that became a number."""

    @event
    class Rated:
        plan: Annotated[Plan, Personal(erased=Plan.BASIC)]
        code: Annotated[str, Personal(erased="0")]


class Fewer(Enum):
    BASIC = "basic"


class Today(Aggregate, category="person"):
    @event(upcasters={1: [Cast("code", int)]})
    class Rated:
        plan: Annotated[Fewer, Personal(erased=Fewer.BASIC)]
        code: Annotated[int, Personal(erased=0)]


@pytest.mark.parametrize(("plan", "code"), [(Plan.NAMED, "7"), (Plan.BASIC, SENTINEL)])
def test_a_dead_letter_tells_none_of_it(store: SqlEventStore, plan: Plan, code: str) -> None:
    store.append("person-1", [NewEvent(Former.Rated(plan=plan, code=code))], expected=ANY)
    with pytest.raises(InvalidEventData) as refused:
        Dispatcher(store).load(Today, "1")
    assert not tells(everything_of(refused.value))

    @subscription("person", group="raters")
    def rate(event: Today.Rated) -> None:
        """It does not get that far."""

    with capture_logs() as told, Subscriber(rate, StoreSource(store, rate, category="person")) as subscriber:
        assert subscriber.run_once(timeout=0).dead == 1
    with store.engine.connect() as connection:
        (letter,) = connection.execute(sa.text("select * from factfold_dead_letters")).all()
    assert letter.error == "InvalidEventData"
    assert not tells(str(letter))
    assert not tells(str(told))
