"""Corrections that keep coming: rows renamed, re-keyed, deleted and put back, flights moved to another plane."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from eventstore import Accepted, Dispatcher
from sample_app.flights.flight import Flight
from sample_app.flights.model import Airline, Airport, Base, Plane
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

    def round(self, *, moves: int = 20) -> None:
        """One round: a plane re-registered, an airport renamed, flights moved, rows deleted and others put back."""
        with Session(self.road.engine) as session, session.begin():
            self._put_back(session)
            self._re_register(session)
            self._rename(session, self._pick(session, Airport).faa)
            for model in (Plane, Airport, Airline):
                self._delete(session, self._pick(session, model))
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

    def _delete(self, session: Session, row: Any) -> None:
        values: Mapping[str, Any] = {c.key: getattr(row, c.key) for c in type(row).__table__.columns}
        self._deleted.append((type(row), dict(values)))
        session.delete(row)
        session.flush()
        self.applied += 1

    def _put_back(self, session: Session, *, keep: int = 0) -> None:
        """Insert deleted rows again, changed a little."""
        kept = self._deleted[len(self._deleted) - keep :] if keep else []
        for model, values in self._deleted[: len(self._deleted) - keep]:
            name = "model" if model is Plane else "name"
            session.add(model(**{**values, name: f"{values[name]}*"}))
            self.applied += 1
        self._deleted = kept
        session.flush()

    def _move(self) -> None:
        flight = self._random.choice(self.flight_ids)
        tailnum = f"N{self._random.randint(100, 999)}UA"
        result = self._dispatcher.send(flight, Flight.reassign, tailnum=tailnum)
        if isinstance(result, Accepted) and result.events:
            self.reassigned[flight] = tailnum
            self.events += len(result.events)
            self.applied += 1
