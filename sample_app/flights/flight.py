"""One flight: scheduled, departed and arrived, or cancelled; now and then moved to another plane."""

from __future__ import annotations

import datetime as dt

from eventstore import Aggregate, command, event


class Flight(Aggregate):
    """A departure of one carrier at one hour of one day."""

    tailnum: str | None = None
    status: str = "unknown"

    @event
    class Scheduled:
        carrier: str
        flight_number: int
        tailnum: str | None
        origin: str
        dest: str
        departs_at: dt.datetime
        distance: int

    @event
    class Departed:
        delay: int

    @event
    class Arrived:
        delay: int | None
        air_time: int | None

    @event
    class Cancelled:
        pass

    @event
    class Reassigned:
        tailnum: str

    @command
    def reassign(self, *, tailnum: str) -> None:
        if self.status == "cancelled":
            self.refuse(f"flight {self.id} was cancelled: no plane flew it")
        if tailnum != self.tailnum:
            self.emit(self.Reassigned(tailnum=tailnum))

    def on_scheduled(self, e: Scheduled) -> None:
        self.tailnum = e.tailnum
        self.status = "scheduled"

    def on_departed(self, e: Departed) -> None:
        self.status = "departed"

    def on_arrived(self, e: Arrived) -> None:
        self.status = "arrived"

    def on_cancelled(self, e: Cancelled) -> None:
        self.status = "cancelled"

    def on_reassigned(self, e: Reassigned) -> None:
        self.tailnum = e.tailnum
