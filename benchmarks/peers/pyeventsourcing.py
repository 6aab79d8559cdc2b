"""What pyeventsourcing does of our benchmarks; run by an interpreter of its own, the database in POSTGRES_… variables.

    pyeventsourcing.py append EVENTS SECONDS            → events/s, new aggregates of so many events, one save each
    pyeventsourcing.py decide LENGTH SECONDS [EVERY]    → commands/s on aggregates of that length; EVERY: snapshots
    pyeventsourcing.py read                             → events/s, the whole log selected and decoded

Default mode: its table lock is on. (POSTGRES_ENABLE_DB_FUNCTIONS=y drops it, and then readers lose events.)
"""

import itertools
import json
import os
import sys
import time

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event


class Dog(Aggregate):
    """A dog and how many tricks it knows."""

    @event("Registered")
    def __init__(self, name):
        self.name = name
        self.tricks = 0

    @event("TrickAdded")
    def add_trick(self, trick):
        """Teach it one."""
        self.tricks += 1


def dog(events):
    """A dog with so many events."""
    made = Dog("Fido")
    for _ in range(events - 1):
        made.add_trick("roll")
    return made


def append(app, events, seconds):
    """Events a second."""
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        app.save(dog(events))
        count += events
    return count / (time.perf_counter() - begun)


def decide(app, length, seconds):
    """Commands a second: load, one command, save; a few aggregates in turn, so that none grows much.

    Where snapshots are on, saving the first events took one already if they are as many as the interval.
    """
    ids = []
    for _ in range(10):
        made = dog(length)
        app.save(made)
        ids.append(made.id)
    count, begun, turns = 0, time.perf_counter(), itertools.cycle(ids)
    while time.perf_counter() - begun < seconds:
        loaded = app.repository.get(next(turns))
        loaded.add_trick("sit")
        app.save(loaded)
        count += 1
    return count / (time.perf_counter() - begun)


def read(app):
    """Events a second."""
    count, last, begun = 0, 0, time.perf_counter()
    while notifications := app.recorder.select_notifications(start=last, limit=1000, inclusive_of_start=False):
        for notification in notifications:
            app.mapper.to_domain_event(notification)
        count, last = count + len(notifications), notifications[-1].id
    return count / (time.perf_counter() - begun)


def main(what, *numbers):
    """Print the rate as JSON."""
    every = int(numbers[2]) if len(numbers) > 2 else None
    kind = type("School", (Application,), {"snapshotting_intervals": {Dog: every} if every else None})
    with kind({"PERSISTENCE_MODULE": "eventsourcing.postgres", **os.environ}) as app:
        measured = {"append": append, "decide": decide, "read": read}[what]
        rate = measured(app, *(int(number) for number in numbers[:2]))
    sys.stdout.write(json.dumps({"rate": rate}))


if __name__ == "__main__":
    main(*sys.argv[1:])
