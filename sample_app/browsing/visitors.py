"""Visitors with searches and clicks, from one seed. Some clicks are reported much later than they happened."""

from __future__ import annotations

import datetime as dt
import random

from eventstore import Dispatcher
from sample_app.browsing.session import Session
from sample_app.road import Road

TERMS = ("tea", "green tea", "teapot", "cup", "kettle")
_OPENED = dt.datetime(2026, 10, 24, 22, tzinfo=dt.UTC)  # a day later Berlin's clocks are set back


class Visitors:
    """Sends the searches and clicks of sessions, and counts them."""

    def __init__(self, road: Road, *, seed: int = 2013) -> None:
        self._random = random.Random(seed)
        self._dispatcher = Dispatcher(road.store)
        self._sessions = 0
        self._late: list[tuple[str, str, dt.datetime]] = []
        self.searches = 0
        self.clicks = 0

    def browse(self, sessions: int) -> None:
        """Some more sessions, each of one to three searches."""
        for _ in range(sessions):
            self._sessions += 1
            self._visit(f"s{self._sessions}", _OPENED + dt.timedelta(minutes=self._sessions))

    def report(self) -> None:
        """The late clicks."""
        for session, sku, clicked_at in self._late:
            self._click(session, sku, clicked_at)
        self._late = []

    def _visit(self, session: str, begins: dt.datetime) -> None:
        for number in range(self._random.randint(1, 3)):
            searched_at = begins + dt.timedelta(minutes=20 * number)
            self._dispatcher.send(session, Session.search, term=self._random.choice(TERMS), searched_at=searched_at)
            self.searches += 1
            for _ in range(self._random.randint(0, 2)):
                # Some of them are too late for the search that they follow: its ten minutes are over.
                clicked_at = searched_at + dt.timedelta(seconds=self._random.randint(1, 720))
                self._send_or_keep(session, f"sku-{self._random.randrange(40)}", clicked_at)

    def _send_or_keep(self, session: str, sku: str, clicked_at: dt.datetime) -> None:
        if self._random.random() < 0.3:
            self._late.append((session, sku, clicked_at))
        else:
            self._click(session, sku, clicked_at)

    def _click(self, session: str, sku: str, clicked_at: dt.datetime) -> None:
        self._dispatcher.send(session, Session.click, sku=sku, clicked_at=clicked_at)
        self.clicks += 1
