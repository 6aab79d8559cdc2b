"""Eight writers in a process that may be killed at any moment; they tell what they begin and what became of it."""

from __future__ import annotations

import json
import os
import sys
import threading

import sqlalchemy as sa

from eventstore import ANY, NO_STREAM, Aggregate, SqlEventStore, event
from eventstore.errors import WrongExpectedVersion

THREADS = 8


class Tally(Aggregate):
    """A stream that everybody writes, or one for each writer."""

    @event
    class Counted:
        """Who counted."""

        writer: str
        number: int


def tell(**fact: object) -> None:
    """One line at once: short ones are written whole or not at all."""
    os.write(1, json.dumps(fact).encode() + b"\n")


class Writer:
    """Appends events under the version it has seen (`one` stream), or whatever the version is (its `own`)."""

    def __init__(self, store: SqlEventStore, name: str, streams: str) -> None:
        self._store = store
        self._name = name
        self._shared = streams == "one"
        self._stream = "tally-all" if self._shared else f"tally-{name}"

    def work(self, appends: int) -> None:
        """So many appends that are acknowledged."""
        for number in range(appends):
            while not self._append(number):
                pass

    def _append(self, number: int) -> bool:
        head = self._store.head(self._stream) if self._shared else None
        expected = (NO_STREAM if head is None else head) if self._shared else ANY
        tell(begun=f"{self._name}/{number}", writer=self._name, seen=head)
        try:
            result = self._store.append(
                self._stream, [Tally.Counted(writer=self._name, number=number)], expected=expected
            )
        except WrongExpectedVersion as error:
            tell(refused=error.actual, writer=self._name, ended=f"{self._name}/{number}")
            return False
        tell(stored=[self._stream, result.version, self._name, number], ended=f"{self._name}/{number}")
        return True


def main(url: str, name: str, streams: str, appends: str) -> None:
    """Write from eight threads."""
    engine = sa.create_engine(url, pool_size=THREADS)
    with SqlEventStore(engine) as store:
        writers = [Writer(store, f"{name}.{n}", streams) for n in range(THREADS)]
        threads = [threading.Thread(target=writer.work, args=(int(appends),)) for writer in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
