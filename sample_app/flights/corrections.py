"""Corrections that keep coming: rows renamed, re-keyed, deleted, put back or measured again, flights moved."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from eventstore import Accepted, Dispatcher
from sample_app.flights.flight import Flight
from sample_app.flights.model import Airline, Airport, Base, Plane, Weather
from sample_app.road import Road

# The three of New York touch a third of all flights each: renamed once, so that large batches occur too.
_LARGE = "JFK"


@dataclass
class Corrections:
    """Applies rounds of corrections from one seed, and remembers which flights were moved."""

    road: Road
    flight_ids: Sequence[str]
    seed: int = 2013
    applied: int = 0
    events: int = 0
    reassigned: dict[str, str] = field(default_factory=dict)
    _deleted: list[tuple[type[Base], dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._dispatcher = Dispatcher(self.road.store)

    def round(self, *, moves: int = 20, measures: int = 5) -> None:
        """One round: rows re-registered, renamed, measured again, deleted and put back, and flights moved."""
        with Session(self.road.engine) as session, session.begin():
            self._put_back(session)
            self._re_register(session)
            self._rename(session, self._pick(session, Airport).faa)
            for model in (Plane, Airport, Airline):
                self._delete(session, self._pick(session, model))
            for _ in range(measures):
                self._measure_again(session)
        for _ in range(moves):
            self._move()

    def rounds(self, count: int) -> None:
        """Several rounds, one after the other."""
        for _ in range(count):
            self.round()

    def rename_large(self) -> None:
        """Rename an airport that a third of the flights leave from."""
        with Session(self.road.engine) as session, session.begin():
            self._rename(session, _LARGE)

    def finish(self) -> None:
        """Put back what is still deleted, except the rows deleted last."""
        with Session(self.road.engine) as session, session.begin():
            self._put_back(session, keep=3)

    def _pick(self, session: Session, model: type[Any]) -> Any:
        key = model.__table__.primary_key.columns[0]
        return session.get_one(model, self._random.choice(session.scalars(sa.select(key).order_by(key)).all()))

    def _re_register(self, session: Session) -> None:
        """A plane gets a new tail number: its primary key changes."""
        plane = self._pick(session, Plane)
        plane.tailnum = f"{plane.tailnum[:5]}X{self.applied}"
        self.applied += 1

    def _rename(self, session: Session, faa: str) -> None:
        if airport := session.get(Airport, faa):
            airport.name = f"{airport.name.split(' #')[0]} #{self.applied}"
            self.applied += 1

    def _measure_again(self, session: Session) -> None:
        """The weather at a flight's hour, at one of the airports: warmer, or from earlier; now and then it goes."""
        hour = dt.datetime.strptime(self._random.choice(self.flight_ids)[-10:], "%Y%m%d%H").replace(tzinfo=dt.UTC)
        known = session.scalars(sa.select(Weather).where(Weather.time_hour == hour).order_by(Weather.id)).all()
        if not known:
            return
        row, kind = self._random.choice(known), self._random.randrange(3)
        if kind == 2:
            self._delete(session, row)
            return
        if kind == 1:
            row.time_hour -= dt.timedelta(minutes=20)
        row.temp = (row.temp or Decimal(0)) + 1
        session.flush()
        self.applied += 1

    def _delete(self, session: Session, row: Any) -> None:
        values: Mapping[str, Any] = {c.key: getattr(row, c.key) for c in type(row).__table__.columns}
        self._deleted.append((type(row), dict(values)))
        session.delete(row)
        session.flush()
        self.applied += 1

    def _put_back(self, session: Session, *, keep: int = 0) -> None:
        """Insert deleted rows again, changed a little."""
        remaining = self._deleted[len(self._deleted) - keep :] if keep else []
        for model, values in self._deleted[: len(self._deleted) - keep]:
            session.add(model(**values | {c: f"{values[c]}*" for c in ("model", "name") if c in values}))
            self.applied += 1
        self._deleted = remaining
        session.flush()

    def _move(self) -> None:
        flight = self._random.choice(self.flight_ids)
        tailnum = f"N{self._random.randint(100, 999)}UA"
        result = self._dispatcher.send(flight, Flight.reassign, tailnum=tailnum)
        if isinstance(result, Accepted) and result.events:
            self.reassigned[flight] = tailnum
            self.events += len(result.events)
            self.applied += 1
