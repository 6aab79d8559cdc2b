"""Personal columns: opened in tables and streams, withheld from functions, and their way through a view."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any
from uuid import NAMESPACE_OID, UUID, uuid5

import pytest

from eventstore import Aggregate, Personal, event
from eventstore.erasure import PersonalData
from eventstore.errors import InvalidEventData, InvalidSeal, KeysMissing
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder, AvroEncoder
from eventstore.fields.upcasting import Cast, Default, Drop, Rename, Retype
from eventstore.personal.sealing import Origin
from eventstore.topics import TopicRecord
from projections import ProjectionGroup, Stream, Table, branches, field, on, sql_view
from projections.errors import InvalidDefinition
from projections.spark.kinds import Reduction
from projections.spark.routing import Routing
from projections.spark.views.disclosing import Disclosure
from projections.spark.views.view_functions import personal_columns
from tests.reference import fold_table, route
from tests.rows import each_row
from tests.vault import Vault

RAW = "topic string, partition int, offset bigint, key string, value binary, ce_id string"


class First(Aggregate, category="guest"):
    @event
    class Joined:
        name: Annotated[str, Personal(erased="(gone)")]
        phone: Annotated[str, Personal(erased="")]
        spent: Annotated[int | None, Personal()]
        day: Annotated[dt.date, Personal(erased=dt.date(1970, 1, 1))]
        card: Annotated[str, Personal(erased="no card")]
        city: str
        zip: str

    @event
    class Left:
        why: Annotated[str, Personal(erased="")]


class Guest(Aggregate):
    @event(
        upcasters={
            1: [Rename("name", to="called"), Cast("phone", int), Cast("spent", Decimal)],
            2: [Cast("day", dt.datetime), Cast("card", UUID), Cast("zip", int), Default("tier", "new")],
        }
    )
    class Joined:
        called: Annotated[str, Personal(erased="(erased)")]
        phone: Annotated[int, Personal(erased=-1)]
        spent: Annotated[Decimal | None, Personal()]
        day: Annotated[dt.datetime, Personal(erased=dt.datetime(2000, 1, 1, tzinfo=dt.UTC))]
        card: Annotated[UUID, Personal(erased=UUID(int=0))]
        city: Annotated[str, Personal(erased="nowhere")]
        zip: Annotated[int, Personal(erased=0)]
        tier: Annotated[str, Personal(erased="none")]
        mail: Annotated[str, Personal(erased="")] = "unknown"

    @event(upcasters={1: [Retype("guest.left")]})
    class Gone:
        why: Annotated[str, Personal(erased="(erased)")]


JOINED = on(Guest.Joined)
TABLE = Table.from_events(
    Guest,
    key="guest_id",
    columns={
        **{f.name: JOINED.take(f.name) for f in event_type_of(Guest.Joined).fields if f.name != "called"},
        # Both are personal, and of different versions of different events: the last one decides.
        "word": [JOINED.take("called"), on(Guest.Gone).take("why")],
    },
)
REGISTRY = {kind.schema_id: kind.registered for owner in (First, Guest) for kind in owner.event_types.values()}


def first(name: str) -> First.Joined:
    card = UUID(int=7)
    return First.Joined(
        name=name, phone="+0417", spent=3, day=dt.date(2024, 2, 29), card=str(card).upper(), city="Bern", zip="03000"
    )


TODAY = Guest.Joined(
    called="Cleo", phone=43, spent=None, day=dt.datetime(2025, 1, 2, 3, tzinfo=dt.UTC), card=UUID(int=9), city="Rome",
    zip=187, tier="gold", mail="c@x",
)  # fmt: skip
STREAMS: list[list[object]] = [
    [first("Ada")],
    [first("Bob"), First.Left(why="late")],
    [TODAY],
    [first("Dan"), Guest.Gone(why="rain")],
    [First.Left(why="early"), first("Eve")],
    [Guest.Gone(why="first"), TODAY],
]


@pytest.fixture
def keys() -> Vault:
    return Vault()


def records_of(streams: list[list[object]], keys: Vault) -> list[tuple[int, str, bytes]]:
    happened = [(f"guest-{n}@{v}", str(n), e) for n, stream in enumerate(streams) for v, e in enumerate(stream)]
    encode: Any = PersonalData(keys).sealer({subject for _, subject, _ in happened})
    framed = [(key, event_type_of(e), e) for key, _, e in happened]
    return [(n, key, encode(kind, e, origin_of(key))) for n, (key, kind, e) in enumerate(framed)]


def id_of(key: str) -> UUID:
    return uuid5(NAMESPACE_OID, key)


def origin_of(key: str) -> Origin:
    return Origin(key.rpartition("@")[0], id_of(key).hex)


def raw_frame(session, records):
    rows = [("guest", 0, offset, key, bytearray(value), str(id_of(key))) for offset, key, value in records]
    return session.createDataFrame(rows, RAW).coalesce(1)


def in_python(records, keys):
    """What plain Python reads, as a table's rows."""
    return fold_table(TABLE, records, REGISTRY, keys, {key: id_of(key).hex for _, key, _ in records})


def opened(frame, table, keys, registry=REGISTRY):
    """The rows of a table as a view's function sees them, opened where the driver does it."""
    rows = Disclosure(registry, keys).opened(frame.select(*table.sliced).toArrow(), table)
    found = rows.select(list(table.columns)).to_pylist()
    return {row[table.key[0]]: {c: row[c] for c in table.payload} for row in found}


def as_columns(rows):
    """What plain Python reads, in the types of columns: a UUID is text."""
    return {k: {c: str(v) if isinstance(v, UUID) else v for c, v in row.items()} for k, row in rows.items()}


def test_every_version_shows_what_plain_python_reads_before_and_after_erasures(spark, keys):
    records = records_of(STREAMS, keys)
    raw = raw_frame(spark, [*records, *records[:3]]).repartition(2)
    frame = Reduction(REGISTRY).reduce(raw, TABLE).persist()
    before = opened(frame, TABLE, keys)
    assert before == as_columns(in_python(records, keys))
    for subject in ("0", "1", "3", "5"):
        keys.erase(subject)
    after = opened(frame, TABLE, keys)
    frame.unpersist()
    assert after == as_columns(in_python(records, keys))
    assert (before["2"], before["4"]) == (after["2"], after["4"])


def test_the_rows_of_a_stream_show_it_too(small, keys):
    left = Stream.from_events(Guest, events=[Guest.Joined, Guest.Gone], key="change", id="guest_id")
    records = records_of(STREAMS, keys)
    raw = raw_frame(small, records).selectExpr("*", "'2026-01-01T00:00:00Z' AS ce_time")
    frame = Reduction(REGISTRY).reduce(raw, left).persist()
    keys.erase("1")
    found = opened(frame, left, keys)
    frame.unpersist()
    assert {key: row["why"] for key, row in found.items() if row["why"]} == {
        "1@1": "(erased)", "3@1": "rain", "4@0": "early", "5@0": "first",
    }  # fmt: skip
    assert (found["0@0"]["phone"], found["1@0"]["phone"], found["1@0"]["called"]) == (417, -1, "(erased)")


def test_executors_open_as_the_driver_does(small, keys):
    records = records_of(STREAMS, keys)
    keys.erase("1")
    frame = Reduction(REGISTRY).reduce(raw_frame(small, records), TABLE).select(*TABLE.sliced).persist()
    here = Disclosure(REGISTRY, keys).opened(frame.toArrow(), TABLE).sort_by("guest_id")
    there = Disclosure(REGISTRY, _Fixed(keys)).opened(frame, TABLE).toArrow().sort_by("guest_id")
    frame.unpersist()
    assert there.to_pylist() == here.to_pylist()


class _Fixed:
    """The same keys in another process: without the lock, which no other process could take."""

    def __init__(self, keys: Vault) -> None:
        self._by_id = dict(keys._by_id)

    def keys(self, ids):
        return {id: self._by_id[id] for id in ids if id in self._by_id}

    def close(self):
        """Nothing is open."""


def test_a_placeholder_is_part_of_what_a_table_means():
    def declared(erased: str) -> Table:
        class Guest(Aggregate):
            @event
            class Joined:
                name: Annotated[str, Personal(erased=erased)]

        return Table.from_events(Guest, key="guest_id", columns={"name": on(Guest.Joined).take("name")})

    assert declared("a").signature() == declared("a").signature() != declared("b").signature()


def another_id(key: str) -> str:
    return id_of("another").hex


@each_row(
    ("what", "changes"),
    [
        ("stream", {"key": lambda key: key.replace("guest-0", "guest-9")}),
        ("event", {"ce_id": another_id}),
        ("nothing", {"ce_id": lambda key: None}),
    ],
)
def test_a_value_under_another_record_does_not_open_in_a_table(small, keys, what, changes):
    ((offset, key, value),) = records_of([[first("Ada")]], keys)
    row = {"key": key, "ce_id": str(id_of(key)), **{name: change(key) for name, change in changes.items()}}
    raw = small.createDataFrame([("guest", 0, offset, row["key"], bytearray(value), row["ce_id"])], RAW)
    with pytest.raises(InvalidSeal, match="does not open"):
        opened(Reduction(REGISTRY).reduce(raw, TABLE), TABLE, keys)


class Visit(Aggregate):
    """What names its subjects by a text, a number and a UUID."""

    @event
    class Noted:
        by: str
        number: int
        card: UUID
        one: Annotated[str, Personal(subject="by", erased="")]
        two: Annotated[str, Personal(subject="number", erased="")]
        three: Annotated[str, Personal(subject="card", erased="")]


NOTED = event_type_of(Visit.Noted)
NOTES = Table.from_events(
    Visit, key="visit_id", columns={name: on(Visit.Noted).take(name) for name in ("one", "two", "three")}
)


def noted(keys: Vault) -> dict[str, Any]:
    """The values of an event as its record holds them."""
    happened = Visit.Noted(by="ä:7", number=-8, card=UUID(int=0xABCDEF), one="1", two="2", three="3")
    encode = PersonalData(keys).sealer({"ä:7", "-8", str(UUID(int=0xABCDEF))})
    return AvroDecoder({NOTED.schema_id: NOTED.registered}.__getitem__).decode(
        encode(NOTED, happened, origin_of("visit-1@0"))
    )[1]


def seen_in_a_table(small, keys, values):
    registry = {NOTED.schema_id: NOTED.registered}
    value = AvroEncoder(NOTED.registered).encode(values)
    return opened(Reduction(registry).reduce(raw_frame(small, [(0, "visit-1@0", value)]), NOTES), NOTES, keys, registry)


def test_subjects_of_every_type_are_bound_in_a_table_as_in_the_store(small, keys):
    assert seen_in_a_table(small, keys, noted(keys)) == {"1": {"one": "1", "two": "2", "three": "3"}}


@each_row("swap", [{"by": "ä"}, {"number": 8}, {"card": UUID(int=1)}])
def test_a_value_of_another_subject_does_not_open_in_a_table(small, keys, swap):
    with pytest.raises(InvalidSeal, match="does not open"):
        seen_in_a_table(small, keys, {**noted(keys), **swap})


def test_a_value_that_cannot_be_cast_is_refused_when_it_is_opened(small, keys):
    nobody = First.Joined(name="", phone="none", spent=None, day=dt.date(1, 1, 1), card="", city="", zip="1")
    frame = Reduction(REGISTRY).reduce(raw_frame(small, records_of([[nobody]], keys)), TABLE)
    with pytest.raises(InvalidEventData, match="field phone cannot be cast: this str is no long") as refused:
        opened(frame, TABLE, keys)
    assert "none" not in str(refused.value)


def test_a_function_that_would_see_a_sealed_value_is_refused(small, keys):
    class Later(Aggregate, category="guest"):
        @event(upcasters={1: [lambda old: {"why": old["why"].strip()}]})
        class Left:
            why: Annotated[str, Personal(erased="")]

    table = Table.from_events(Later, key="guest_id", columns={"why": on(Later.Left).take("why")})
    with pytest.raises(InvalidDefinition, match=r"a function upcasts guest\.left of version 1, and would see it seal"):
        Reduction(REGISTRY).reduce(raw_frame(small, records_of([[First.Left(why="x")]], keys)), table)


def test_a_field_that_is_personal_no_more_is_refused_while_its_records_are(small, keys):
    class Later(Aggregate, category="guest"):
        @event
        class Left:
            why: str

    table = Table.from_events(Later, key="guest_id", columns={"why": on(Later.Left).take("why")})
    with pytest.raises(InvalidDefinition, match="leave the field personal"):
        Reduction(REGISTRY).reduce(raw_frame(small, records_of([[First.Left(why="x")]], keys)), table)


def test_without_keys_nothing_is_opened(small, keys):
    frame = Reduction(REGISTRY).reduce(raw_frame(small, records_of(STREAMS, keys)), TABLE)
    with pytest.raises(KeysMissing):
        opened(frame, TABLE, None)


def test_a_router_passes_sealed_values_by_whatever_becomes_of_them(small, keys):
    class Later(Aggregate, category="guest"):
        @event(upcasters={1: [Cast("phone", int), Cast("zip", int), Drop("card")]})
        class Joined:
            phone: Annotated[int, Personal(erased=-1)]
            zip: int

    routes = branches(Later, {"near": field("zip") < 4000}, otherwise="far")
    (_, _, value), *_ = records_of([[first("Ada")]], keys)
    headed = (
        RAW.replace("key string", "key binary").removesuffix(", ce_id string")
        + ", headers array<struct<key:string,value:binary>>"
    )
    registry = {k.schema_id: k.registered for k in (event_type_of(First.Joined), event_type_of(Later.Joined))}
    raw = small.createDataFrame([("guest", 0, 0, bytearray(b"k@0"), bytearray(value), None)], headed)
    (routed,) = Routing(routes, registry).routed(raw).collect()
    ((_, topic, problem),) = route(routes, [TopicRecord("guest", 0, 0, b"k@0", value, (), 0)], registry)
    assert (routed.topic, topic, problem) == ("guest.near", "guest.near", None)


# ---- the columns of a view that hold values of a person


class Visitor(Aggregate, category="guest"):
    @event
    class Joined:
        name: Annotated[str, Personal(erased="(gone)")]
        city: str
        visits: int


SIGNED_IN = on(Visitor.Joined)
guests = Table.from_events(
    Visitor, key="id", columns={name: SIGNED_IN.take(name) for name in ("name", "city", "visits")}
)
TEXTS = {
    "SELECT id, city, visits FROM guests": "",
    "SELECT id, name, city FROM guests": "name",
    "SELECT id, upper(name) AS a, concat(city, '!') AS b FROM guests": "a",
    "SELECT id, CASE WHEN name = 'Ann' THEN 1 ELSE visits END AS a, visits AS name FROM guests": "a",
    "WITH g AS (SELECT id AS i, city AS c, name AS n FROM guests) SELECT i AS id, c AS a, n AS b FROM g": "b",
    "SELECT id, pos, x, city FROM guests LATERAL VIEW posexplode(array(name)) AS pos, x": "pos,x",
    "SELECT id, pos, x, name FROM guests LATERAL VIEW posexplode(array(city)) AS pos, x": "name",
    "SELECT id, city FROM guests WHERE name <> 'Ann'": "",
}
GROUPED = {
    "SELECT city, count(*) AS n, max(visits) AS most FROM guests GROUP BY city": "",
    "SELECT city, max(name) AS a, sum(visits) AS b FROM guests GROUP BY city": "a",
    "SELECT city, max(n) AS a FROM (SELECT city, lag(name) OVER (PARTITION BY city ORDER BY id) AS n FROM guests) "
    "GROUP BY city": "a",
    "SELECT city, max(a) AS a, max(b) AS b FROM (SELECT city, name AS a, city AS b FROM guests UNION ALL "
    "SELECT city, city, 'x' FROM guests AS others) GROUP BY city": "a",
}


def personal(small, made):
    return ",".join(sorted(personal_columns(small, ProjectionGroup("g", [made]))[made.name]))


@each_row(("text", "expected"), TEXTS.items(), TEXTS)
def test_columns_of_a_row_a_guest(small, text, expected):
    by = {"by": "id", "key": ("id", "pos")} if "explode" in text else {}
    assert personal(small, sql_view("rows", text, tables={"guests": guests}, **by)) == expected


@each_row(("text", "expected"), GROUPED.items(), GROUPED)
def test_columns_of_a_group(small, text, expected):
    assert (
        personal(
            small,
            sql_view(
                "rows", text, tables={"guests": guests, **({"others": guests} if "others" in text else {})}, by="city"
            ),
        )
        == expected
    )


def test_a_view_over_a_view_shows_what_that_one_reads(small):
    shown = sql_view("shown", "SELECT id, city, name AS called FROM guests", tables={"guests": guests})
    over = sql_view("over", "SELECT id, city AS c, called AS n FROM shown", tables={"shown": shown})
    assert personal(small, over) == "n"
