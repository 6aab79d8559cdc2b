"""An instance of a process in the order of time: what came, what it sent and set, and what is still to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from eventstore.backends.sql.process_rows import Scheduled

Tense = Literal["came", "did", "waits", "late", "set aside"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of a timeline. `time` is when it happened or is due, None for what was set aside.

    `place` is that of the event which came, and `state` is the state after a step.
    """

    tense: Tense
    time: datetime | None
    what: str
    says: str = ""
    error: str = ""
    place: str | None = None
    version: int | None = None
    state: Any = None


def timeline(
    steps: Iterable[Mapping[str, Any]], scheduled: Iterable[Scheduled], *, now: datetime
) -> tuple[Moment, ...]:
    """Return steps from the first to the last, then what is scheduled by its due time, what was set aside last."""
    past = [moment for step in steps for moment in _of_step(step)]
    return (*past, *(_scheduled(one, now) for one in scheduled))


def _of_step(step: Mapping[str, Any]) -> Iterator[Moment]:
    cause, time = step["cause"], step["time"]
    place = cause["place"] if cause["kind"] == "event" else None
    said = f"{step['status']}: {step['note']}" if step["note"] else step["status"]
    yield Moment(
        "came", time, f"{cause['kind']} {cause['name']}", said, step["problem"], place, step["version"], step["state"]
    )
    for sent in step["sent"]:
        yield Moment("did", time, f"sends {sent['command']}", f"to {sent['to']}")
    for timer in step["timers"]:
        yield Moment("did", time, f"sets timer {timer['name']}", f"due {timer['due']:%Y-%m-%d %H:%M:%S}Z")
    for name in step["cancelled"]:
        yield Moment("did", time, f"takes back timer {name}")


def _scheduled(one: Scheduled, now: datetime) -> Moment:
    tense: Tense = "set aside" if one.due is None else "late" if one.due < now else "waits"
    to = f"to {one.target}" if one.target else ""
    tried = f"{one.attempts} attempts" if one.attempts else ""
    return Moment(tense, one.due, f"{one.kind} {one.name}", " ".join(filter(None, (to, tried))), one.error or "")
