"""What a person sees of parts that run together: one table on a terminal, lines elsewhere, JSON for machines."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from factfold.development.parts import LeftOut
from factfold.development.supervising import OnLine, OnState, Running, State

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS: Final = {
    State.STARTING: "yellow",
    State.RUNNING: "green",
    State.WAITING: "red",
    State.ENDED: "dim",
    State.FAILED: "bold red",
}
Look = Callable[[], Sequence[Running]]


class Lines:
    """Writes a line for each change of a part and each line of it, with the part's name before; or JSON."""

    def __init__(self, *, as_json: bool, has_screen: bool = False) -> None:
        self._as_json, self._has_screen = as_json, has_screen
        self._writing = threading.Lock()

    @property
    def on_state(self) -> OnState:
        """What to call with each change of a part."""
        return lambda one: self._tell(one, {"state": one.state.value, "restarts": one.restarts}, _said(one))

    @property
    def on_line(self) -> OnLine:
        """What to call with each line of a part."""
        return lambda one, line: self._tell(one, {"line": line}, line)

    def left_out(self, one: LeftOut) -> None:
        """Say that a definition is not run."""
        facts = {"part": one.name, "kind": one.kind, "state": "left out", "reason": one.reason}
        self._write(json.dumps(facts) if self._as_json else f"{one.name} | not run: {one.reason}")

    def prepared(self, store: str) -> None:
        """Say that a new event store was prepared."""
        said = f"prepared a new event store: {store}"
        self._write(json.dumps({"state": "prepared", "store": store}) if self._as_json else said)

    def _tell(self, one: Running, facts: dict[str, object], said: str) -> None:
        if not self._has_screen:
            named = {"part": one.part.name, "kind": one.part.kind, **facts}
            self._write(json.dumps(named) if self._as_json else f"{one.part.name} | {said}")

    def _write(self, line: str) -> None:
        with self._writing:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


@contextmanager
def screen(look: Look, left_out: Sequence[LeftOut]) -> Iterator[None]:
    """Show a table of the parts while the block runs, twice a second."""
    from rich.live import Live

    with Live(get_renderable=lambda: table_of(look(), left_out), refresh_per_second=2, screen=False):
        yield


def table_of(parts: Sequence[Running], left_out: Sequence[LeftOut]) -> Table:
    """Return the table: each part with its state, how long it has been so, restarts and its last line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=True, title_justify="left", box=None, pad_edge=False)
    for heading, grows in (("part", 2), ("kind", 0), ("state", 0), ("for", 0), ("restarts", 0), ("last line", 3)):
        table.add_column(heading, ratio=grows or None, no_wrap=heading != "last line", overflow="ellipsis")
    for one in parts:
        state = Text(one.state.value, style=_COLOURS[one.state])
        age, restarts = _age(time.monotonic() - one.since), str(one.restarts or "")
        table.add_row(one.part.name, one.part.kind, state, age, restarts, Text(one.line))
    for other in left_out:
        table.add_row(other.name, other.kind, Text("not run", style="dim"), "", "", Text(other.reason, style="dim"))
    return table


def _said(one: Running) -> str:
    if one.state in (State.WAITING, State.FAILED):
        return f"{one.state.value} after failure {one.failures}; its log is {one.log}"
    return one.state.value


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
