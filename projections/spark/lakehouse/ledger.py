"""The ledger of a group: numbered files with a line a generation, the newest of which says how everything stands.

A line holds a run's progress and the versions of its tables. The next file is therefore the commit of a batch, and the
line with the status ``serving`` is the pointer by which readers find views. If two processes put the same number, one
is first, and the other one reads again (docs/decisions/0051).
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import stamina

from projections.errors import TableStoreUnavailable
from projections.spark.lakehouse.numbered_files import NumberedFiles
from projections.stores.runs import Run, RunState, decode_progress, encode_progress

# A process that slept after it read the ledger could put a removed number again. It therefore reads again after a
# minute: fewer than this many commits happen in that time.
FILES_RETAINED: Final = 1_000
_LOOK_HOLDS: Final = 60.0
_ATTEMPTS: Final = 20


@dataclass(frozen=True)
class Entry:
    """The row of a generation: its state, and the versions of its tables, by their names."""

    state: RunState
    tables: Mapping[str, int]

    @property
    def run(self) -> Run:
        """The run."""
        return self.state.run

    def changed(self, *, tables: Mapping[str, int] | None = None, **values: Any) -> Entry:
        """The row with other values, as of now."""
        state = replace(self.state, **values, updated_at=dt.datetime.now(dt.UTC))
        return Entry(state, self.tables if tables is None else tables)


Entries = Mapping[int, Entry]


class _LostRace(Exception):
    """Another process committed to the ledger first."""


class Ledger:
    """The rows of one group's generations, in files of their own."""

    def __init__(self, files: NumberedFiles, group: str) -> None:
        self._files = files
        self._group = group
        self._known: tuple[int, Entries] = (-1, {})

    def entries(self) -> Entries:
        """The rows as they are now, by generation; none where nothing was built."""
        return self._newest()[1]

    def _newest(self) -> tuple[int, Entries]:
        number, entries = self._known
        newest = self._files.newest(known=number)
        if newest != number:
            number, entries = self._known = newest, self._read(newest) if newest >= 0 else {}
        return number, entries

    def change(self, change: Callable[[Entries], Entries]) -> Entries:
        """Put other rows in the place of those there are, by one file; another one that comes first is looked at.

        ``change`` is asked again then, with the rows of that one; what it raises ends it, and nothing is changed.
        TableStoreUnavailable where others come first again and again.
        """
        try:
            for attempt in stamina.retry_context(on=_LostRace, attempts=_ATTEMPTS, timeout=60.0, wait_initial=0.01):
                with attempt:
                    return self._change(change)
        except _LostRace as error:
            raise TableStoreUnavailable(
                f"other processes committed to the ledger first, {_ATTEMPTS} times. Nothing was written",
                remedy="try again. If it fails again, check which processes write this group",
                place=f"projection group {self._group}",
            ) from error
        raise AssertionError("the last attempt returns or raises")

    def _change(self, change: Callable[[Entries], Entries]) -> Entries:
        looked = time.monotonic()
        newest, entries = self._newest()
        changed = change(entries)
        if changed != entries:
            number, lines = newest + 1, [json.dumps(_as_row(entry)) for entry in changed.values()]
            if time.monotonic() - looked > _LOOK_HOLDS or not self._files.put(number, lines):
                raise _LostRace(self._group)
            self._known = (number, changed)
            self._files.remove(number - FILES_RETAINED)
        return changed

    def _read(self, number: int) -> Entries:
        entries = [_of_row(self._group, json.loads(line)) for line in self._files.read(number)]
        return {entry.run.generation: entry for entry in sorted(entries, key=lambda one: one.run.generation)}


def _as_row(entry: Entry) -> dict[str, Any]:
    state, run = entry.state, entry.run
    return {
        "generation": run.generation,
        "version": run.version,
        "fingerprint": run.fingerprint,
        "status": state.status,
        "progress": encode_progress(state.progress),
        "tables": dict(entry.tables),
        "token": run.token,
        "holder": state.holder,
        "paused": state.paused,
        "held": state.held,
        "built": dict(state.built),
        "updated_at": state.updated_at.isoformat() if state.updated_at else None,
    }


def _of_row(group: str, row: Mapping[str, Any]) -> Entry:
    run = Run(group, row["generation"], row["fingerprint"], row["token"], row["version"])
    updated_at = dt.datetime.fromisoformat(row["updated_at"]) if row["updated_at"] else None
    flags = row["paused"], row["held"], row["holder"]
    state = RunState(run, row["status"], decode_progress(row["progress"]), *flags, row["built"], updated_at)
    return Entry(state, row["tables"])
