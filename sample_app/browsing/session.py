"""A visitor's session: searches, and clicks on what was found."""

from __future__ import annotations

import datetime as dt

from eventstore import Aggregate, command, event


class Session(Aggregate, category="browsing"):
    """One visit of one browser, which reports its events when it is online."""

    @event
    class Searched:
        term: str
        searched_at: dt.datetime

    @event
    class Clicked:
        sku: str
        clicked_at: dt.datetime

    @command
    def search(self, *, term: str, searched_at: dt.datetime) -> None:
        if not term:
            self.refuse("a search needs a term")
        self.emit(self.Searched(term=term, searched_at=searched_at))

    @command
    def click(self, *, sku: str, clicked_at: dt.datetime) -> None:
        self.emit(self.Clicked(sku=sku, clicked_at=clicked_at))
