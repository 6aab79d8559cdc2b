"""Which rows of a group can be forgotten, and when: worked out from the promises of its streams and views.

One time says it for a whole generation, its *floor*: of no stream with a promise comes an event from before. So much
follows for each table and view: from which time on its rows may still change, and from which on they are still read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from projections.declaring.streams import EventStream
from projections.declaring.tables import EVENT_TIME, Table
from projections.declaring.timing.promises import InWindows
from projections.declaring.views import Input, View, view_behind
from projections.errors import InvalidDefinition

Times = Mapping[str, int]  # column → how far before the floor a row may still change by it, in microseconds
_WITHOUT: Final = "or declare the stream without retain="


@dataclass(frozen=True)
class Retention:
    """What is forgotten: rows of ``tables`` and ``views``, by name, once each column named is so far before the floor.

    ``frozen`` are views that look beyond a window: their rows from before that do not change, whatever a part of their
    partition gives. ``behind`` is how far the floor is behind the clock.
    """

    behind: int
    tables: Mapping[str, Times]
    views: Mapping[str, Times]
    frozen: Mapping[str, tuple[str, int]]


def retention_of(tables: Mapping[str, Table], views: Sequence[View], *, served: Sequence[View]) -> Retention | None:
    """What a group forgets; None where no stream of it has a promise. InvalidDefinition for a view that needs all.

    ``tables`` and ``views`` are all of the group. The ``served`` views forget nothing.
    """
    promises = [t.retain for t in tables.values() if t.retain is not None]
    if not promises:
        return None
    walk = _Walk()
    for view in views:
        walk.follow(view)
    stay = {view.name for view in served} | {view.name for view in views if view.topic is not None}
    return Retention(
        max(promise.late_micros + promise.delivered_micros for promise in promises),
        {name: _of_state(walk.needed[id(table)]) for name, table in tables.items() if id(table) in walk.needed},
        {v.name: walk.needed[v.name] for v in views if v.name in walk.needed and v.name not in stay},
        walk.frozen,
    )


def _of_state(needed: Times) -> Times:
    """The state of a stream has its time as a whole number."""
    return dict.fromkeys([EVENT_TIME], max(needed.values()))


@dataclass
class _Walk:
    """From the streams to the views that read views: ``times`` by node, and what readers need of each."""

    times: dict[object, dict[str, int]] = field(default_factory=dict)
    needed: dict[object, dict[str, int]] = field(default_factory=dict)
    frozen: dict[str, tuple[str, int]] = field(default_factory=dict)

    def follow(self, view: View) -> None:
        """Note from which time on the rows of a view may change, and which rows of its inputs it still needs."""
        inputs = {name: self._times(table) for name, table in view.tables.items()}
        if not any(inputs.values()):
            return
        for name, times in inputs.items():
            if not times:
                raise _refused(
                    view,
                    f"reads {name!r}, whose rows may change at any time, together with a stream that forgets rows",
                    f"join {name!r} in another group that reads this one's view topic, {_WITHOUT}",
                )
        if view.windows is not None:
            self.times[view.name] = self._windowed(view, view.windows, next(iter(inputs.values())))
        elif view.reach is not None:
            self.times[view.name] = self._reaching(view, inputs)
        else:
            self.times[view.name] = self._grouped(view, inputs)

    def _windowed(self, view: View, windows: InWindows, times: Times) -> dict[str, int]:
        if windows.on not in times:
            raise _refused(view, f"makes windows of {windows.on!r}, which no promise is about", _choose(times))
        if windows.longest is None:
            raise _refused(
                view, "makes sessions, which may go on for ever", f"use tumbling or hopping windows, {_WITHOUT}"
            )
        before = times[windows.on]
        self._need(view, [windows.on], before)
        return {windows.on: before, windows.end: before, windows.start: before + windows.longest}

    def _reaching(self, view: View, inputs: Mapping[str, Times]) -> dict[str, int]:
        assert view.reach is not None  # noqa: S101 - the caller looked
        if (not view.by and len(view.tables) > 1) or view.grouped:
            raise _refused(
                view,
                "has a reach, and no rows of their own time in partitions",
                "give it by='…' and key='…', or the key of its only table, and a time column",
            )
        before = max(times[_first(times)] for times in inputs.values()) + view.reach.micros
        self._need(view, [_first(times) for times in inputs.values()], before + view.reach.micros)
        self.frozen[view.name] = view.reach.on, before
        return {view.reach.on: before}

    def _grouped(self, view: View, inputs: Mapping[str, Times]) -> dict[str, int]:
        every = list(inputs.values())
        held = [dict(zip(view.by, view.root_key_in(name), strict=False)) for name in view.tables]
        shared = {
            c: max(times[own[c]] for times, own in zip(every, held, strict=True))
            for c in view.by
            if all(own[c] in times for times, own in zip(every, held, strict=True))
        }
        if not shared:
            raise _refused(
                view,
                "looks at rows of a stream that forgets them, and says not how far back",
                f"group by a window of time, or promise it: reach=Reach('2 hours', on='…'), {_WITHOUT}",
            )
        column = min(shared, key=lambda c: shared[c])
        self._need(view, [own[column] for own in held], shared[column])
        return dict(sorted(shared.items(), key=lambda one: one[1]))

    def _need(self, view: View, columns: Sequence[str], before: int) -> None:
        for table, column in zip(view.tables.values(), columns, strict=True):
            needed = self.needed.setdefault(_node(table), {})
            needed[column] = max(before, needed.get(column, 0))

    def _times(self, table: Input) -> dict[str, int]:
        if isinstance(whole := table.whole, EventStream) and whole.retain is not None:
            return {whole.time: 0}
        return self.times.get(_node(table), {})


def _node(table: Input) -> object:
    view = view_behind(table)
    return view.name if view is not None else id(table.whole)


def _first(times: Times) -> str:
    """The column that is a row's own time."""
    return next(iter(times))


def _choose(times: Times) -> str:
    return f"name {' or '.join(times)} in on=, {_WITHOUT}"


def _refused(view: View, what: str, remedy: str) -> InvalidDefinition:
    return InvalidDefinition(f"view {view.name!r} {what}", remedy=remedy, place=f"view {view.name}")
