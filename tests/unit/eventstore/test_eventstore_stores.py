"""The store in memory stands in for the real one: a service's start-up code works in its tests."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import hypothesis
import pytest
from hypothesis import strategies as st
from sqlalchemy import create_engine

import eventstore
from eventstore import (
    ANY,
    Dispatcher,
    MasterKeys,
    MemoryEventStore,
    NewEvent,
    Position,
    SqlEventStore,
    StreamAppend,
    errors,
    identifiers,
    open_async_subscriber,
    open_subscriber,
    run_async_subscription,
    run_subscription,
    subscription,
    tenant_store,
)
from eventstore import tenants as tenants_of
from eventstore.backends.sql import engines
from eventstore.backends.sql import store as store_module
from eventstore.backends.sql.store import tenant_schema
from eventstore.errors import (
    FactfoldError,
    InvalidArgument,
    InvalidEventData,
    InvalidIdentifier,
    Refused,
    UnknownEventType,
    UnknownSchema,
    UnsupportedBackend,
    WrongExpectedVersion,
)
from eventstore.identifiers import MAX_TENANT_LENGTH, NO_STREAM, STREAM_EXISTS, StreamName, accepted_heads, snake_case
from eventstore.kafka import source as kafka_source
from eventstore.store import Category, EventStore, FenceStatus
from eventstore.testing.scenario import FixedClock, given
from tests.errors import raises
from tests.ledger import Payment
from tests.rows import each_row
from tests.unit.eventstore.counter import Counter
from tests.unit.eventstore.customer import Customer
from tests.vault import Vault


@pytest.fixture
def store(clock: FixedClock) -> MemoryEventStore:
    return MemoryEventStore(clock=clock)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


def test_what_a_service_does_when_it_starts(store: MemoryEventStore) -> None:
    for _ in range(2):
        store.create_tables()
        store.register(Counter, Payment)
        store.declare_category("payment", partitions=4)
        store.declare_category("shipment", partitions=2, topic="shipped")
    assert store.categories() == [
        Category("counter", "counter", 4, 1),
        Category("payment", "payment", 4, 1),
        Category("shipment", "shipped", 2, 1),
    ]
    kinds = [*Counter.event_types.values(), *Payment.event_types.values()]
    assert store.schemas() == sorted((kind.registered for kind in kinds), key=lambda schema: schema.id)
    assert store.schema(kinds[0].schema_id) == kinds[0].registered


def test_what_it_is_refused(store: MemoryEventStore) -> None:
    store.append("payment-1", [Payment.Received(amount=1)], expected=ANY)
    with raises(InvalidArgument, code="partitions-fixed", match="has 4 partitions, 8 were asked for"):
        store.declare_category("payment", partitions=8)
    with pytest.raises(InvalidIdentifier):
        store.declare_category("No Such", partitions=1)
    with pytest.raises(UnknownSchema):
        store.schema(1)


def test_where_a_category_stands(store: MemoryEventStore, clock: FixedClock) -> None:
    assert (store.fence(), store.last_position("payment")) == (FenceStatus(0, 0.0, None), None)
    first = store.append("payment-1", [Payment.Received(amount=1)], expected=ANY)
    store.append("counter-1", [Counter.Counted(by=1)], expected=ANY)
    clock.advance(timedelta(hours=1))
    second = store.append("payment-2", [Payment.Received(amount=1)] * 2, expected=ANY)
    assert store.last_position("payment") == second.positions[-1]
    assert store.last_position("payment", before=second.time) == first.positions[0]
    clock.advance(timedelta(days=-1))
    behind = store.append("payment-3", [Payment.Received(amount=1)], expected=ANY)
    assert store.last_position("payment", before=second.time) == first.positions[0]
    assert store.last_position("payment", before=behind.time) is None
    assert store.backlog(None, category="payment") == (4, first.time)
    assert store.backlog(first.positions[0], category="payment") == (3, second.time)
    assert store.backlog(Position(9, 9), category="payment") == (0, None)


# ---- What opens a store offers what its siblings do, the package root is small, and errors carry cause and remedy


def options(opener: Callable[..., object]) -> set[str]:
    parameters = inspect.signature(opener).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}


def test_every_opener_of_a_subscription_takes_the_same_options() -> None:
    every = options(open_subscriber)
    assert "keys" in every
    assert options(open_async_subscriber) == every
    assert options(run_subscription) == every | {"stop", "on_batch", "on_open", "restarts", "metrics"}
    assert options(run_async_subscription) == every | {"stop", "on_batch", "restarts", "metrics"}


def test_a_tenant_s_store_hands_its_keys_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def of_a_file(database: object, **options: Any) -> SqlEventStore:
        return SqlEventStore(f"sqlite:///{tmp_path}/acme.db", keys=options["keys"])

    monkeypatch.setattr(store_module, "SqlEventStore", of_a_file)
    with tenant_store("postgresql://u@h/d", "acme", keys=MasterKeys({"one": os.urandom(32)})) as store:
        store.create_tables()
        store.append("customer-1", [Customer.Registered(name="Ada")], expected=ANY)
        assert [recorded.data["name"] for recorded in store.read_all()] == ["Ada"]


def test_no_engine_is_opened_to_see_what_a_url_says(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    create = engines.create_engine
    monkeypatch.setattr(engines, "create_engine", lambda url, **o: opened.append(str(url)) or create(url, **o))
    with pytest.raises(UnsupportedBackend, match="tenants apart"):
        tenant_store("sqlite:///acme.db", "acme")
    with pytest.raises(UnsupportedBackend, match="cannot be read"):
        tenant_store("nonsense", "acme")
    assert opened == []
    tenant_store("postgresql://u@h/d", "acme").close()
    assert len(opened) == 1


def test_an_async_subscriber_reads_with_the_keys_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    keys = Vault()

    @subscription("customer", group="welcome")
    async def welcome(event: Customer.Registered) -> None:
        """Nothing arrives here."""

    monkeypatch.setattr(kafka_source, "KafkaSource", lambda *_, keys=None: given.append(keys))
    open_async_subscriber(welcome, keys=keys)
    assert given == [keys]


def test_the_root_has_no_errors_and_is_small_enough_to_read() -> None:
    assert set(vars(errors)) & set(eventstore.__all__) == set()
    assert len(eventstore.__all__) <= 60


def test_the_embedded_store_and_its_subscriber_need_no_postgres_driver_and_nothing_of_asyncio() -> None:
    absent = "import sys; sys.modules.update(dict.fromkeys(('psycopg', 'greenlet', 'aiosqlite')))"
    use = "from eventstore import SqlEventStore; store = SqlEventStore('sqlite://'); store.create_tables()"
    subprocess.run([sys.executable, "-c", f"{absent}; {use}; store.close(); import eventstore.subscribing"], check=True)


def test_an_error_reads_as_cause_remedy_and_place() -> None:
    error = FactfoldError("the kettle is empty", remedy="fill it", place="kitchen")
    assert str(error) == "the kettle is empty\n  remedy: fill it\n  at: kitchen"
    assert str(FactfoldError("no", remedy="go")) == "no\n  remedy: go"


@pytest.mark.parametrize(
    "error",
    [
        FactfoldError("m", remedy="r", place="p"),
        WrongExpectedVersion("order-1", 3, None),
        Refused("too late", place="order-1"),
    ],
)
def test_an_error_survives_pickling(error: FactfoldError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_the_tree_draws_every_error_and_nothing_else() -> None:
    names = {name for name, value in vars(errors).items() if isinstance(value, type)}
    drawn = re.findall(r"^[│├└─ ]*(\w+)\b", (errors.__doc__ or "").partition("\n\n")[2], re.MULTILINE)
    assert len(drawn) > 30
    assert sorted(drawn) == sorted(names)


def test_a_stale_version_says_where_the_stream_stands() -> None:
    assert "is at version 4, the writer expected 2" in str(WrongExpectedVersion("order-1", 2, 4))
    assert "has no events" in str(WrongExpectedVersion("order-1", 2, None))


# ---- Names of tenants, and what they become, before any database is asked


URL = "postgresql+psycopg://shop@127.0.0.1:1/shop"


@each_row(
    "tenant",
    [
        "", " ", "Acme", "1acme", "_acme", "acme-order", "acme.order", "acme order", "ácme", "acme\n", "acme\0", "%",
        "%s", "{0}", 'a"; drop schema public cascade; --', "a'; select 1; --", "../acme", "a/b", "a\\b", "a;b", "a$b",
        "аcme", "x" * (MAX_TENANT_LENGTH + 1),
    ],
)  # fmt: skip
def test_a_name_that_is_not_a_lower_case_word_is_refused(tenant: str) -> None:
    with pytest.raises(InvalidIdentifier, match="is not a valid name"):
        tenant_store(URL, tenant)


def test_the_longest_name_is_a_schema_that_postgresql_keeps_whole() -> None:
    assert len(tenant_schema("x" * MAX_TENANT_LENGTH)) < 63


def test_a_schema_that_postgresql_would_cut_or_keeps_for_itself_is_refused() -> None:
    for schema in ("x" * 64, "pg_shop"):
        with pytest.raises(InvalidIdentifier):
            SqlEventStore(URL, schema=schema)


def test_a_store_of_a_file_has_no_schemas_and_no_tenants(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(UnsupportedBackend, match="no schemas"):
        SqlEventStore(url, schema="shop")
    with pytest.raises(UnsupportedBackend, match="tenants apart"):
        tenant_store(url, "acme")
    engine = create_engine(url)
    with pytest.raises(UnsupportedBackend, match="tenants apart"):
        tenants_of(engine)
    engine.dispose()


# ---- What is no name, no event or no list of events is refused by an error of ours, and nothing is stored


ADDED = Counter.Counted(by=1)
NO_TEXT: list[Any] = [42, True, 1.5, None, UUID(int=1), b"counter-1", ["counter-1"], Counter]


STREAM_USES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda store, name: store.append(name, [ADDED], expected=ANY),
    "append_batch": lambda store, name: store.append_batch([StreamAppend(name, [ADDED], ANY)]),
    "read_stream": lambda store, name: list(store.read_stream(name)),
    "head": lambda store, name: store.head(name),
    "archive_stream": lambda store, name: store.archive_stream(name, expected=ANY),
    "unarchive_stream": lambda store, name: store.unarchive_stream(name),
    "is_archived": lambda store, name: store.is_archived(name),
    "delete_stream": lambda store, name: store.delete_stream(name, expected=ANY),
}
ID_USES: dict[str, Callable[[Any, Any], Any]] = {
    "load": lambda store, id: Dispatcher(store).load(Counter, id),
    "send": lambda store, id: Dispatcher(store).send(id, Counter.add, 1),
    "StreamName": lambda store, id: StreamName("counter", id),
    "Aggregate.stream": lambda store, id: Counter(id).stream,
}
CHECKS = [StreamName.parse, *(one for name, one in vars(identifiers).items() if name.startswith("check_"))]


@each_row("name", NO_TEXT, ids=repr)
@each_row("use", STREAM_USES)
def test_a_stream_name_that_is_no_text_is_refused(store: EventStore, use: str, name: Any) -> None:
    with pytest.raises(InvalidIdentifier):
        STREAM_USES[use](store, name)


@each_row("id", NO_TEXT, ids=repr)
@each_row("use", ID_USES)
def test_a_stream_id_that_is_no_text_is_refused(store: EventStore, use: str, id: Any) -> None:
    with pytest.raises(InvalidIdentifier):
        ID_USES[use](store, id)


def test_the_remedy_is_to_give_a_text() -> None:
    with pytest.raises(InvalidIdentifier, match="stream id '42' is of type int, not a text") as refused:
        StreamName("counter", 42)  # type: ignore[arg-type]
    assert refused.value.remedy == "give a text: str(id)"


@each_row("name", NO_TEXT, ids=repr)
@each_row("check", CHECKS, ids=lambda check: check.__name__)
def test_every_name_that_is_no_text_is_refused(check: Callable[[Any], Any], name: Any) -> None:
    with pytest.raises(InvalidIdentifier):
        check(name)


@pytest.mark.parametrize("offered", [Counter.Counted, NewEvent(Counter.Counted)], ids=["bare", "in a NewEvent"])
def test_a_class_is_no_event(store: EventStore, offered: Any) -> None:
    with pytest.raises(InvalidEventData, match=r"Counter\.Counted is a class, not an event"):
        store.append("counter-1", [ADDED, offered], expected=ANY)
    assert list(store.read_stream("counter-1")) == []


@each_row("offered", [int, 3, None, "x", {}, object(), NewEvent(NewEvent(ADDED)), Counter])
def test_what_is_no_event_is_refused(store: EventStore, offered: Any) -> None:
    with pytest.raises(FactfoldError):
        store.append("counter-1", [ADDED, offered], expected=ANY)
    assert list(store.read_stream("counter-1")) == []


def test_an_aggregate_emits_no_class() -> None:
    with pytest.raises(UnknownEventType, match=r"Counter has no event .*Counter\.Counted"):
        Counter("1").emit(Counter.Counted)


def test_nothing_is_tried_with_a_class() -> None:
    with pytest.raises(InvalidEventData, match="is a class"):
        given(Counter, Counter.Counted).state()


@each_row(
    "events", [ADDED, Counter.Counted, "ab", b"ab", 3, None, iter([ADDED]), {ADDED}], ids=lambda e: type(e).__name__
)
def test_what_is_no_list_of_events_is_refused(store: EventStore, events: Any) -> None:
    with raises(InvalidArgument, code="invalid-append", match="no list of events"):
        store.append("counter-1", events, expected=ANY)
    assert list(store.read_stream("counter-1")) == []


def test_a_stream_name_is_split_at_its_first_dash() -> None:
    assert StreamName.parse("order-2026-01-02") == StreamName("order", "2026-01-02")
    assert str(StreamName("stock_item", "A-1")) == "stock_item-A-1"


@hypothesis.given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=200))
def test_any_printable_id_survives_its_text_form(stream_id: str) -> None:
    name = StreamName("order", stream_id)
    assert StreamName.parse(str(name)) == name


@each_row(
    ("check", "text", "words"),
    [
        *((StreamName.parse, text, "") for text in ("order", "-1", "order-", "Order-1", "order-\x00", "order-a\tb",
                                                    "or der-1")),
        *((identifiers.check_type_name, text, "event type name")
          for text in ("placed", "order.Placed", "order..placed", "order.placed ", "1.a", "")),
        *((identifiers.check_topic, text, "topic") for text in ("", "a b", "a/b", "é", "x" * 101)),
        (lambda text: StreamName("order", text), "x" * 250, "256 characters"),
    ],
)  # fmt: skip
def test_what_is_no_such_name_is_refused(check: Callable[[Any], Any], text: str, words: str) -> None:
    with pytest.raises(InvalidIdentifier, match=words or None):
        check(text)
    assert StreamName("order", "x" * 249)


@pytest.mark.parametrize(
    ("expected", "heads"),
    [(NO_STREAM, (-1, -1)), (STREAM_EXISTS, (0, 2**31 - 1)), (ANY, (-1, 2**31 - 1)), (3, (3, 3))],
)
def test_an_expectation_is_a_range_of_heads(expected: int, heads: tuple[int, int]) -> None:
    assert accepted_heads(expected) == heads


def test_a_negative_version_is_no_expectation() -> None:
    with pytest.raises(InvalidIdentifier, match="NO_STREAM"):
        accepted_heads(-1)


def test_positions_order_by_transaction_first() -> None:
    assert Position(1, 9) < Position(2, 1) < Position(2, 3)


@pytest.mark.parametrize(
    ("name", "snake"),
    [("Order", "order"), ("StockItem", "stock_item"), ("HTTPCall", "http_call"), ("A1B", "a1_b")],
)
def test_class_names_become_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake
