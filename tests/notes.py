"""Notes of one text: the aggregate of tests that need no more than something to store."""

from __future__ import annotations

from eventstore import Aggregate, command, event


class Note(Aggregate):
    @event
    class Written:
        text: str

    @command
    def write(self, text: str) -> None:
        self.emit(self.Written(text=text))


def written(*texts: str) -> list[Note.Written]:
    """An event for each text."""
    return [Note.Written(text=text) for text in texts]
