"""Which windows a row is in: what a list of all windows says, made with Python's own time zones."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from projections import ProjectionGroup, Table, view
from projections.declaring.timing.promises import DAY, Length
from projections.declaring.timing.windows import Grid, cumulative, hopping, session, tumbling
from projections.declaring.view_decorator import windowed
from projections.errors import InvalidDefinition
from projections.spark.views.view_functions import view_columns
from tests.errors import raises, refused
from tests.rows import each_row

VISITS = sa.Table(
    "visits", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("shop", sa.BigInteger),
    sa.Column("at", sa.DateTime(timezone=True)), sa.Column("day", sa.Date),
)  # fmt: skip
visits = Table.from_changelog(VISITS, topic="visits")
DAY_LONG = timedelta(days=1)
BOUNDS = ("unix_micros(window_start) AS s", "unix_micros(window_end) AS e")
ROWS = StructType([StructField("id", LongType()), StructField("at", TimestampType())])


def windows(small, chosen, moments):
    """By window, those that each moment is in, in seconds: asked in one job."""
    rows = small.createDataFrame([(n, moment) for n, moment in enumerate(moments)], ROWS)
    asked = (windowed("placed", visits, window, on="at", columns=[])(rows) for window in chosen)
    numbered = (frame.selectExpr(f"{n} AS n", "id", *BOUNDS) for n, frame in enumerate(asked))
    found = [[set() for _ in moments] for _ in chosen]
    for row in reduce(DataFrame.union, numbered).collect():
        found[row.n][row.id].add((row.s / 1e6, row.e / 1e6))
    return found


def instant(wall, zone):
    """The first moment at which clocks of a zone show a time; one that they leave out, as if they had not."""
    return wall.replace(tzinfo=zone, fold=0).timestamp()


def beginnings(zone, days, step):
    """The moments around some days at which windows begin: those of a step at each of two equal times of day."""
    zone, found = ZoneInfo(zone), set()
    for day in days:
        first = datetime(day.year, day.month, day.day, tzinfo=UTC) - 5 * DAY_LONG
        found |= {instant(first.replace(tzinfo=None) + n * step, zone) for n in range(11 * DAY_LONG // step)}
        if step <= timedelta(hours=1):
            minutes = range(int(first.timestamp()), int((first + 11 * DAY_LONG).timestamp()), 60)
            walls = ((m, datetime.fromtimestamp(m, zone).replace(tzinfo=None)) for m in minutes)
            found |= {float(m) for m, wall in walls if (wall - datetime(1970, 1, 1)) % step == timedelta(0)}
    return sorted(found)


CHANGES = {  # days around which clocks are set
    "Europe/Berlin": (date(2026, 3, 29), date(2026, 10, 25)),
    "America/New_York": (date(2026, 3, 8), date(2026, 11, 1)),
    "Australia/Lord_Howe": (date(2026, 4, 5), date(2026, 10, 4)),
    "Asia/Kathmandu": (date(1986, 1, 1),),
    "America/Sao_Paulo": (date(2018, 11, 4), date(2018, 2, 18)),  # at midnight
    "Pacific/Apia": (date(2011, 12, 30),),  # a day that was not
    "UTC": (date(1969, 12, 31),),
}
STEPS = {"30 minutes": 30, "1 hour": 60, "6 hours": 360, "1 day": 1440}


def moments_around(day, count, chance):
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=1)
    exact = [begin + timedelta(minutes=30 * n) for n in range(0, 144, 5)]
    return exact + [begin + timedelta(microseconds=chance.randrange(3 * 86_400 * 10**6)) for _ in range(count)]


@each_row("zone", CHANGES)
def test_a_row_is_in_the_window_of_its_time_on_the_clocks_of_a_zone(small, zone):
    chance = random.Random(1)
    moments = [moment for day in CHANGES[zone] for moment in moments_around(day, 40, chance)]
    found = windows(small, [tumbling(step, zone=zone) for step in STEPS], moments)
    for (step, minutes), of_step in zip(STEPS.items(), found, strict=True):
        around = beginnings(zone, CHANGES[zone], timedelta(minutes=minutes))
        for moment, its in zip(moments, of_step, strict=True):
            after = bisect_right(around, moment.timestamp())
            assert its == {(around[after - 1], around[after])}, (zone, step, moment)


def meant(begin, zone, step):
    """What clocks show at a beginning, or would have shown if they had not left it out."""
    wall = datetime.fromtimestamp(begin, zone).replace(tzinfo=None)
    return wall - (wall - datetime(1970, 1, 1)) % step


HOPS = {"15 minutes": 15, "1 hour": 60, "6 hours": 360}


@each_row("zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia"])
def test_a_row_is_in_every_hop_of_a_day_however_many_hours_the_day_has(small, zone):
    clocks = ZoneInfo(zone)
    moments = [moment for one in CHANGES[zone] for moment in moments_around(one, 0, random.Random(2))]
    found = windows(small, [hopping("1 day", step, zone=zone) for step in HOPS], moments)
    for (step, minutes), of_step in zip(HOPS.items(), found, strict=True):
        length = timedelta(minutes=minutes)
        begin = beginnings(zone, CHANGES[zone], length)
        ends = {b: instant(meant(b, clocks, length) + DAY_LONG, clocks) for b in begin}
        for moment, its in zip(moments, of_step, strict=True):
            now = moment.timestamp()
            assert its == {(b, end) for b, end in ends.items() if b <= now < end}, (zone, step, moment)


def test_days_of_berlin_last_23_and_25_hours_and_its_two_half_past_two_are_apart(small):
    berlin = ZoneInfo("Europe/Berlin")
    spring, autumn = datetime(2026, 3, 29, 12, tzinfo=UTC), datetime(2026, 10, 25, 12, tzinfo=UTC)
    twice = [datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1)]
    sizes = [tumbling(size, zone="Europe/Berlin") for size in ("1 day", "1 hour")]
    (*days, _, _), (_, _, *hours) = windows(small, sizes, [spring, autumn, *twice])
    assert [(end - start) / 3600 for ((start, end),) in days] == [23, 25]
    assert [(end - start) / 3600 for ((start, end),) in hours] == [1, 1]
    assert hours[0] != hours[1]


def seconds(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


EXAMPLES = {
    "weeks begin on Mondays": (tumbling("1 week"), "2026-11-26T12:00", [("2026-11-23", "2026-11-30")]),
    "two weeks": (tumbling("14 days"), "1969-12-30T12:00", [("1969-12-29", "1970-01-12")]),
    "months": (tumbling("1 month"), "2024-02-29T23:59:59.999999", [("2024-02-01", "2024-03-01")]),
    "quarters": (tumbling("1 quarter"), "1969-12-31T00:00", [("1969-10-01", "1970-01-01")]),
    "years": (tumbling("1 year"), "1970-01-01", [("1970-01-01", "1971-01-01")]),
    "an offset of 45 minutes": (
        tumbling("1 hour", offset="45 minutes"), "2026-01-01T10:44:59", [("2026-01-01T09:45", "2026-01-01T10:45")]),
    "a business day": (
        tumbling("1 day", offset="6 hours"), "2026-01-02T05:59", [("2026-01-01T06:00", "2026-01-02T06:00")]),
    "the hours of Kathmandu": (
        tumbling("1 hour", zone="Asia/Kathmandu"), "2026-01-01T00:20", [("2026-01-01T00:15", "2026-01-01T01:15")]),
    "a beginning is inside": (tumbling("10 minutes"), "2026-01-01T00:10", [("2026-01-01T00:10", "2026-01-01T00:20")]),
    "before 1970": (
        tumbling("7 hours"), "1969-12-31T23:00", [("1969-12-31T17:00", "1970-01-01")]),
    "hops": (
        hopping("1 hour", "30 minutes"), "2026-01-01T00:40",
        [("2026-01-01T00:00", "2026-01-01T01:00"), ("2026-01-01T00:30", "2026-01-01T01:30")]),
    "a hop that does not divide the size": (
        hopping("1600 milliseconds", "700 milliseconds"), "1970-01-01T00:00:01.5",
        [("1970-01-01T00:00:00", "1970-01-01T00:00:01.6"), ("1970-01-01T00:00:00.7", "1970-01-01T00:00:02.3"),
         ("1970-01-01T00:00:01.4", "1970-01-01T00:00:03")]),
    "hops with gaps between them": (hopping("10 minutes", "1 hour"), "2026-01-01T00:30", []),
    "hops of days where clocks are set": (
        hopping("2 days", "1 day", zone="Europe/Berlin"), "2026-10-25T12:00",
        [("2026-10-23T22:00", "2026-10-25T23:00"), ("2026-10-24T22:00", "2026-10-26T23:00")]),
    "a hop of a day that begins at one, because its midnight is left out": (
        hopping("1 day", "1 day", zone="America/Sao_Paulo"), "2018-11-05T02:30",
        [("2018-11-05T02:00", "2018-11-06T02:00")]),
    "months from three hours before midnight": (
        tumbling("1 month", offset="-3 hours"), "2026-03-29", [("2026-02-28T21:00", "2026-03-31T21:00")]),
    "the same on clocks": (
        tumbling("1 month", offset="-3 hours", zone="UTC"), "2026-03-29", [("2026-02-28T21:00", "2026-03-31T21:00")]),
    "quarters of hops from three hours before midnight": (
        hopping("1 month", "1 quarter", offset="-3 hours"), "2026-01-31T20:59", [
            ("2025-12-31T21:00", "2026-01-31T21:00")]),
    "a month so far, of which the first midnight is left out": (
        cumulative("1 month", "15 days", zone="America/Asuncion"), "2017-10-01T12:00",
        [("2017-10-01T04:00", end) for end in ("2017-10-16T03:00", "2017-10-31T03:00", "2017-11-01T03:00")]),
    "a day so far": (
        cumulative("1 day", "6 hours"), "2026-01-01T11:00",
        [("2026-01-01", "2026-01-01T12:00"), ("2026-01-01", "2026-01-01T18:00"), ("2026-01-01", "2026-01-02")]),
    "a day of 25 hours so far": (
        cumulative("1 day", "12 hours", zone="Europe/Berlin"), "2026-10-25T12:00",
        [("2026-10-24T22:00", "2026-10-25T22:00"), ("2026-10-24T22:00", "2026-10-25T23:00")]),
    "a month so far, by days of 25 hours": (
        cumulative("1 month", "10 days", zone="Europe/Berlin"), "2026-10-25T12:00",
        [("2026-09-30T22:00", "2026-10-30T23:00"), ("2026-09-30T22:00", "2026-10-31T23:00")]),
}  # fmt: skip


def test_a_row_is_in_these_windows(small):
    chosen, moments, right = zip(*EXAMPLES.values(), strict=True)
    at = [datetime.fromisoformat(moment).replace(tzinfo=UTC) for moment in moments]
    found = [of_window[n] for n, of_window in enumerate(windows(small, chosen, at))]
    assert dict(zip(EXAMPLES, found, strict=True)) == {
        case: {(seconds(start), seconds(end)) for start, end in pairs}
        for case, pairs in zip(EXAMPLES, right, strict=True)
    }


def test_a_row_without_a_time_is_in_no_window(small):
    assert windows(small, [tumbling("1 day")], [None]) == [[set()]]


def planned(small, *views):
    return view_columns(small, ProjectionGroup("windows", list(views)))


def test_windows_of_windows_are_views_of_views(small):
    hours = windowed("hours", visits, hopping("1 hour", "10 minutes", zone="Europe/Berlin"), on="at", columns=["shop"])
    days = windowed("days", hours, cumulative("1 day", "1 hour"), on="window_start", named="day")
    sessions = windowed("stays", visits, session("30 minutes", by="shop"), on="at")
    found = planned(small, hours, days, sessions)
    assert list(found["days"]) == ["id", "at", "shop", "window_start", "window_end", "day_start", "day_end"]
    assert [view.key for view in (hours, days, sessions)] == [
        ("id", "window_start"), ("id", "window_start", "day_end"), ("shop", "id")]  # fmt: skip


def test_a_view_by_windows_has_a_row_a_window(small):
    def counted(name, window, *by):
        def count(visits):
            return visits.groupBy(*by).agg(F.count("*").alias("visits"))

        count.__name__ = name
        return view(by=window)(count)

    views = [
        counted("hourly", hopping("1 hour", "10 minutes", on="at"), "window_start"),
        counted("so_far", cumulative("1 day", "1 hour", on="at"), "window_end"),
        counted("stays", session("30 minutes", by="shop", on="at"), "shop", "window_start"),
    ]
    found = planned(small, *views)
    assert [list(found[one.name])[: len(one.key) + 1] for one in views] == [[*one.key, "visits"] for one in views]
    with pytest.raises(InvalidDefinition, match="does not say of which time"):
        counted("daily", tumbling("1 day"), "window_start")


def test_a_session_of_each_row_of_a_table_is_known_by_the_key_of_the_row(small):
    alone = windowed("alone", visits, session("1 hour", by="id"), on="at", columns=[])
    assert list(planned(small, alone)["alone"]) == ["id", "at", "window_start", "window_end"]


@each_row(
    ("declare", "words"),
    [
        (lambda: tumbling("often"), "size 'often' is no length of time"),
        (lambda: tumbling("0 days"), "size '0 days' is not positive"),
        (lambda: tumbling("1 day", zone="Europe/Atlantis"), "'Europe/Atlantis' is no time zone"),
        (lambda: tumbling("1 day", zone="../etc/passwd"), "is no time zone"),
        (
            lambda: tumbling("45 minutes", zone="Europe/Berlin"),
            "windows every 45 minutes do not fit",
        ),
        (
            lambda: tumbling("1 hour", offset="5 minutes", zone="Europe/Berlin"),
            "from 5 minutes on do not fit",
        ),
        (lambda: tumbling("1 day", offset="1 month"), "offset '1 month' is of months"),
        (lambda: hopping("1 day", "-1 hour"), "every '-1 hour' is not positive"),
        (lambda: hopping("1 year", "1 minute"), "a row would be in 535680 windows"),
        (lambda: cumulative("1 day", "1 month"), "a window of 1 day cannot grow by 1 month"),
        (lambda: cumulative("1 hour", "1 day"), "a window of 1 hour cannot grow by 1 day"),
        (lambda: session("-10 minutes", by="shop"), "gap '-10 minutes' is not positive"),
        (lambda: session("1 month", by="shop"), "gap '1 month' is of months"),
        (lambda: session("1 minute", by=()), "session has no columns in by"),
        (lambda: session("1 minute", by=None), "session has no columns in by"),
        (lambda: windowed("w", visits, tumbling("1 day"), on="when"), "takes column 'when'"),
        (lambda: windowed("w", visits, tumbling("1 day"), on="at", columns=["price"]), "takes column 'price'"),
        (lambda: windowed("w", visits, session("1 day", by="user"), on="at"), "'user' at a time"),
        (lambda: windowed("1w", visits, tumbling("1 day"), on="at"), "view '1w' is not a usable name"),
    ],
)
def test_what_cannot_be_a_window_is_refused_when_it_is_declared(declare, words):
    refused(declare, words)


def test_a_zone_that_java_does_not_know_is_refused_when_the_view_is_planned(small):
    window = replace(tumbling("1 day", zone="Europe/Berlin"), grid=Grid(Length(DAY), zone="Europe/Atlantis"))
    with pytest.raises(InvalidDefinition, match="Java does not know the time zone 'Europe/Atlantis'"):
        planned(small, windowed("w", visits, window, on="at"))


def test_what_the_columns_show_is_refused_when_the_view_is_planned(small):
    with pytest.raises(InvalidDefinition, match="'day' of the rows is date, and a time is a timestamp"):
        planned(small, windowed("w", visits, tumbling("1 day"), on="day"))
    one = windowed("one", visits, tumbling("1 day"), on="at")
    with pytest.raises(InvalidDefinition, match="the rows have a column 'window_start' already"):
        planned(small, windowed("two", one, tumbling("1 hour"), on="at"))
    with raises(InvalidDefinition, code="unknown-column", match="the rows have no column 'noon'"):
        planned(small, windowed("two", one, tumbling("1 hour"), on="noon", named="hour"))
