"""An aggregate whose event has a second schema, as a newer release would register. Importable by workers."""

from __future__ import annotations

from eventstore import Aggregate, event


class Late(Aggregate):
    """Something that began."""

    note: str = ""

    @event
    class Began:
        note: str

    def on_began(self, e: Began) -> None:
        self.note = e.note
