"""What a group forgets is worked out when it is declared; a view that would need what is forgotten is refused."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import pytest
import sqlalchemy as sa

from eventstore import Aggregate, Personal, event
from projections import (
    ProjectionGroup,
    Reach,
    Retain,
    Stream,
    Table,
    cumulative,
    hopping,
    session,
    sql_view,
    tumbling,
    view,
    windowed,
)
from projections.declaring.tables import EVENT_TIME
from projections.declaring.timing.promises import require_row_time
from tests.errors import refused

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND


class Search(Aggregate):
    @event
    class Done:
        session: str
        at: dt.datetime
        text: str

    @event
    class Named:
        name: Annotated[str | None, Personal(subject="session")]
        session: str
        at: dt.datetime


ONE_HOUR = Retain(late="1 hour")


def stream(retain=ONE_HOUR, name="searches"):
    return Stream.from_events(Search, events=Search.Done, key="entry", id="search", time="at", name=name, retain=retain)


searches, clicks = stream(), stream(Retain("10 minutes", delivered="2 days"), name="clicks")
SESSIONS = sa.Table("sessions", sa.MetaData(), sa.Column("session", sa.Text, primary_key=True))
sessions = Table.from_changelog(SESSIONS, topic="shop.public.sessions")


def counted(rows, by="window_start", *, name="counted", **others):
    columns = ", ".join([by] if isinstance(by, str) else by)
    query = f"SELECT {columns}, count(*) AS n FROM rows GROUP BY {columns}"
    return sql_view(name, query, tables={"rows": rows}, by=by, **others)


def rows_in(window, **others):
    return windowed("rows_in", searches, window, on="at", **others)


def retention(*views):
    return ProjectionGroup("shop", list(views)).retention


def test_without_a_promise_nothing_is_forgotten():
    assert retention(counted(windowed("rows_in", stream(None), tumbling("1 hour"), on="at"))) is None


def test_the_floor_is_behind_the_clock_by_the_greatest_promises_together():
    pairs = sql_view(
        "pairs", "SELECT a.session, a.entry, a.at FROM a JOIN b ON a.session = b.session", by="session", key="entry",
        tables={"a": searches, "b": clicks}, reach=Reach("5 minutes", on="at"),
    )  # fmt: skip
    assert retention(counted(rows_in(tumbling("1 hour")))).behind == HOUR + DAY
    assert retention(pairs).behind == 10 * MINUTE + 2 * DAY


@pytest.mark.parametrize(
    ("window", "by", "forgotten"),
    [
        (tumbling("1 hour"), "window_start", {"window_start": HOUR}),
        (tumbling("1 hour"), "window_end", {"window_end": 0}),
        (tumbling("1 hour"), ("window_start", "window_end"), {"window_end": 0}),
        (tumbling("1 hour"), ("session", "window_start"), {"window_start": HOUR}),
        (tumbling("1 day", zone="Europe/Berlin"), "window_start", {"window_start": 2 * DAY}),
        (tumbling("1 month"), "window_start", {"window_start": 31 * DAY}),
        (hopping("90 minutes", "10 minutes"), "window_start", {"window_start": 90 * MINUTE}),
        (cumulative("1 day", "1 hour"), "window_start", {"window_start": DAY}),
        (cumulative("1 day", "1 hour"), "window_end", {"window_end": 0}),
    ],
    ids=str,
)
def test_rows_of_windows_stay_while_a_row_may_come_into_their_window(window, by, forgotten):
    found = retention(counted(rows_in(window), by))
    assert found.views == {"rows_in": forgotten}
    assert found.tables == {"searches": {EVENT_TIME: 0}}


def test_windows_over_windows_add_up():
    hours = counted(rows_in(tumbling("1 hour")), name="hours")
    in_days = windowed("in_days", hours, tumbling("1 day"), on="window_start", named="day")
    found = retention(counted(in_days, "day_start"))
    assert found.views == {
        "rows_in": {"window_start": HOUR},
        "hours": {"window_start": HOUR},
        "in_days": {"day_start": HOUR + DAY},
    }


def test_what_is_listed_or_published_stays():
    rows = rows_in(tumbling("1 hour"))
    assert retention(rows, counted(rows)).views == {}
    published = rows_in(tumbling("1 hour"), topic="rows")
    assert retention(counted(published)).views == {}


def test_what_two_views_read_stays_for_both():
    rows = rows_in(tumbling("1 hour"))
    found = retention(counted(rows), counted(rows, "window_end", name="others"))
    assert found.views == {"rows_in": {"window_start": HOUR, "window_end": 0}}


def test_a_view_with_a_reach_needs_rows_twice_as_far_back():
    near = sql_view(
        "near", "SELECT session, entry, at, count(*) OVER (PARTITION BY session ORDER BY at"
        " RANGE BETWEEN INTERVAL 5 MINUTES PRECEDING AND CURRENT ROW) AS n FROM rows",
        by="session", key="entry", tables={"rows": searches}, reach=Reach("5 minutes", on="at"),
    )  # fmt: skip
    found = retention(counted(windowed("near_in", near, tumbling("1 hour"), on="at")))
    assert found.tables == {"rows": {EVENT_TIME: 10 * MINUTE}}
    assert found.frozen == {"near": ("at", 5 * MINUTE)}
    assert found.views == {"near": {"at": 5 * MINUTE}, "near_in": {"window_start": HOUR + 5 * MINUTE}}


def _sessions():
    stays = windowed("stays", searches, session("30 minutes", by="session"), on="at")
    return counted(stays, ("session", "window_start"))


def _by_session():
    return counted(searches, "session")


def _with_another_table():
    return sql_view(
        "named", "SELECT a.session, a.entry FROM a JOIN b ON a.session = b.session", by="session", key="entry",
        tables={"a": searches, "b": sessions},
    )  # fmt: skip


def _looked_up():
    query = "SELECT a.entry, b.session FROM a LEFT JOIN b ON a.session = b.session"
    return sql_view("looked_up", query, tables={"a": searches, "b": sessions}, key="entry")


def _row_by_row():
    return sql_view("shown", "SELECT entry, at FROM rows", tables={"rows": searches}, key="entry")


def _other_time():
    times = counted(searches, "at", name="times")
    return counted(windowed("others", times, tumbling("1 hour"), on="n"), "window_start")


def _grouped_with_reach():
    return counted(searches, "session", reach=Reach("1 hour", on="at"))


@pytest.mark.parametrize(
    ("declare", "words", "remedy"),
    [
        (_sessions, "view 'stays' makes sessions, which may go on for ever", "tumbling or hopping"),
        (_by_session, "view 'counted' looks at rows of a stream that forgets them", "reach=Reach("),
        (_with_another_table, "view 'named' reads 'b', whose rows may change at any time", "without retain="),
        (_looked_up, "view 'looked_up' reads 'b', whose rows may change at any time", "view topic"),
        (_row_by_row, "view 'shown' looks at rows of a stream that forgets them", "reach=Reach("),
        (_other_time, "view 'others' makes windows of 'n', which no promise is about", "name at in on="),
        (_grouped_with_reach, "view 'counted' has a reach, and no rows of their own time", "key='…'"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_view_that_would_need_what_is_forgotten_is_refused(declare, words, remedy):
    assert refused(lambda: retention(declare()), words, remedy).place.startswith("view ")


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: Retain(late="-1 hour"), "late '-1 hour' is negative"),
        (lambda: Retain(late="1 hour", delivered="-1 day"), "delivered '-1 day' is negative"),
        (lambda: Retain(late="1 month"), "of months"),
        (lambda: Retain(late="a while"), "no length of time"),
        (lambda: Reach("-1 hour", on="at"), "reach '-1 hour' is negative"),
        (
            lambda: require_row_time("v", "reaches from", "at", None, remedy="name it"),
            "reaches from 'at', which is no column of it",
        ),
        (
            lambda: Stream.from_events(Search, events=Search.Done, key="search", time="at", retain=Retain("1 hour")),
            "keyed by 'search' alone",
        ),
        (
            lambda: Stream.from_events(
                Search, events=Search.Named, key="entry", id="search", time="at", retain=Retain("1 hour")
            ),
            "personal column 'name'",
        ),
    ],
)
def test_a_promise_that_cannot_hold_is_refused(declare, words):
    refused(declare, words)


def test_a_promise_of_lateness_or_reach_is_part_of_what_a_view_means_and_one_of_delivery_is_not():
    def fingerprint(retain, reach="5 minutes"):
        rows = {"rows": stream(retain)}
        one = sql_view("one", "SELECT entry, at FROM rows", tables=rows, reach=Reach(reach, on="at"))
        return ProjectionGroup("shop", [one]).fingerprint()

    known = fingerprint(ONE_HOUR)
    assert fingerprint(Retain("1 hour", delivered="3 days")) == fingerprint(Retain("60 minutes")) == known
    others = [fingerprint(None), fingerprint(Retain("2 hours")), fingerprint(ONE_HOUR, "6 minutes")]
    assert len({known, *others}) == 4


def test_a_python_view_may_have_a_reach():
    @view(key="entry", tables={"rows": searches}, reach=Reach("0 seconds", on="at"))
    def shown(rows):
        return rows.select("entry", "at")

    assert retention(shown).tables == {"rows": {EVENT_TIME: 0}}
