"""A class that is new to a store is held against what the store has: once, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, SqlEventStore, event
from eventstore.compatibility import require_readable
from eventstore.errors import SchemaIncompatible
from eventstore.event_types import event_type_of
from eventstore.fields.upcasting import Cast, Rename, Retype
from tests.unit.eventstore.test_eventstore_assigned_ids import Numbered


def paid(today: Any, steps: dict[int, Any] | None = None, *, name: str = "Paid") -> type[Aggregate]:
    """An aggregate with an event whose amount is of a type."""
    made = event(upcasters=steps or {})(type(name, (), {"__annotations__": {"amount": today}}))
    return type("Bill", (Aggregate,), {name: made}, category="bill")


FIRST, CARELESS = paid(int), paid(str)
CAREFUL = paid(str, {1: [Cast("amount", str)]})


def one(owner: Any, amount: Any) -> Any:
    return next(iter(owner.event_types.values())).cls(amount=amount)


def kind_of(owner: Any) -> Any:
    return event_type_of(one(owner, 0))


@pytest.fixture
def url(tmp_path: Path) -> str:
    with SqlEventStore(f"sqlite:///{tmp_path}/bills.db") as opened:
        opened.create_tables()
        opened.append("bill-1", [one(FIRST, 3)], expected=ANY)
    return f"sqlite:///{tmp_path}/bills.db"


@pytest.fixture
def store(url: str) -> Iterator[SqlEventStore]:
    with SqlEventStore(url) as opened:
        yield opened


def test_what_breaks_and_what_to_do_about_it_is_said(store: SqlEventStore) -> None:
    with pytest.raises(SchemaIncompatible) as refused:
        store.register(CARELESS)
    stored = kind_of(FIRST).schema_id
    assert refused.value.message == (
        f"bill.paid.amount could not be read in events of schema {stored}, which is stored: "
        "it is long there, and string today"
    )
    assert refused.value.remedy == 'make it a new version, upcasters={…, 1: […]}: Cast("amount", …)'
    assert (refused.value.place, refused.value.subject) == ("bill.paid.amount", "bill.paid")


def test_nothing_of_a_refused_class_is_stored(store: SqlEventStore) -> None:
    with pytest.raises(SchemaIncompatible):
        store.register(CARELESS)
    with pytest.raises(SchemaIncompatible):
        store.append("bill-1", [one(CARELESS, "x")], expected=ANY)
    assert [schema.id for schema in store.schemas()] == [kind_of(FIRST).schema_id]
    assert store.head("bill-1") == 0


def test_within_a_caller_s_transaction_too(store: SqlEventStore) -> None:
    with pytest.raises(SchemaIncompatible), store.engine.begin() as connection:
        store.append("bill-1", [one(CARELESS, "x")], expected=ANY, connection=connection)
    with store.engine.begin() as connection:
        store.append("bill-1", [one(CAREFUL, "x")], expected=ANY, connection=connection)
    assert store.head("bill-1") == 1


def test_a_registry_is_not_asked_for_a_class_that_the_store_refuses(url: str) -> None:
    registry = Numbered()
    with SqlEventStore(url, registry=registry) as opened:
        with pytest.raises(SchemaIncompatible):
            opened.append("bill-1", [one(CARELESS, "x")], expected=ANY)
        assert registry.asked == []
        opened.append("bill-1", [one(FIRST, 4)], expected=ANY)  # the same schema under another id
        with pytest.raises(SchemaIncompatible):
            opened.append("bill-1", [one(CARELESS, "x")], expected=ANY)


def statements(store: SqlEventStore) -> list[str]:
    seen: list[str] = []
    sa.event.listen(store.engine, "before_cursor_execute", lambda _, __, text, *rest: seen.append(text))
    return seen


def reads_of_payloads(seen: list[str]) -> int:
    return sum("schemas.payload" in text and "ORDER BY" in text for text in seen)


def test_stored_schemas_are_read_only_where_one_is_new(store: SqlEventStore) -> None:
    seen = statements(store)
    for number in range(3):
        store.append("bill-1", [one(FIRST, number)], expected=ANY)
    assert reads_of_payloads(seen) == 0
    for number in range(3):
        store.append("bill-1", [one(CAREFUL, str(number))], expected=ANY)
    assert reads_of_payloads(seen) == 1
    seen.clear()
    store.append("bill-1", [one(FIRST, 1), one(CAREFUL, "1")], expected=ANY)
    assert not any("schemas" in text for text in seen)


@pytest.mark.parametrize(
    ("stored", "new"),
    [
        (CAREFUL, FIRST),  # the older one of a deployment under way
        (FIRST, paid(str, {1: [lambda old: {"amount": str(old["amount"])}]})),
        (FIRST, paid(str, {1: [Retype("bill.other")]}, name="Settled")),
        (FIRST, paid(int | None)),
    ],
)
def test_what_nobody_can_tell_or_what_fits_passes(stored: Any, new: Any) -> None:
    require_readable([kind_of(new)], [kind_of(stored).registered])


def test_a_former_name_is_known_too() -> None:
    settled = paid(str, {1: [Retype("bill.paid")]}, name="Settled")
    with pytest.raises(SchemaIncompatible, match=r"bill\.settled\.amount .* it is long there, and string"):
        require_readable([kind_of(settled)], [kind_of(FIRST).registered])


def test_a_step_that_leads_wrong_is_named_without_another_version() -> None:
    wrong = paid(str, {1: [Rename("sum", to="amount")]})
    with pytest.raises(SchemaIncompatible) as refused:
        require_readable([kind_of(wrong)], [kind_of(FIRST).registered])
    assert refused.value.remedy == 'Cast("amount", …)'
