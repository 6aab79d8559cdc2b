"""Branches without a router: a subscription of the store gets its branch, and what has none is a dead letter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, SqlEventStore, Subscriber, event, subscription
from eventstore.event_types import event_type_of
from projections import branch_source, branches, field
from projections.errors import InvalidDefinition


class Parcel(Aggregate):
    @event
    class Weighed:
        grams: int | None


class EarlierParcel(Aggregate, category="parcel"):
    """As an older release wrote it."""

    @event(name="parcel.weighed")
    class Weighed:
        grams: str | None


PARCELS = branches(Parcel, {"heavy": field("grams") > 1000}, otherwise="light")


@subscription("parcel.heavy", group="lifters", attempts=1)
def lift(event: Parcel.Weighed) -> None:
    pass


def dead_letters(store):
    with store.engine.connect() as connection:
        return connection.execute(sa.text("SELECT stream, error FROM factfold_dead_letters ORDER BY stream")).all()


def deliver(store, chosen=lift):
    with Subscriber(chosen, branch_source(store, chosen, PARCELS), engine=store.engine) as subscriber:
        while subscriber.run_once(timeout=0).records:
            pass
        return subscriber.report


def test_a_subscription_gets_the_events_of_its_branch(store):
    for number, grams in enumerate([500, 1500, None]):
        store.append(f"parcel-{number}", [Parcel.Weighed(grams=grams)], expected=ANY)
    report = deliver(store)
    assert (report.handled, report.skipped, dead_letters(store)) == (1, 2, [])


def test_records_of_a_schema_that_a_predicate_cannot_take_are_dead_letters_whatever_they_hold(store):
    # As a release kept them that did not hold a new class against what is stored; today one of them is refused.
    store._catalogue.register(event_type_of(cls).registered for cls in (EarlierParcel.Weighed, Parcel.Weighed))
    store.append("parcel-0", [EarlierParcel.Weighed(grams="1500")], expected=ANY)
    store.append("parcel-1", [EarlierParcel.Weighed(grams=None)], expected=ANY)
    store.append("parcel-2", [Parcel.Weighed(grams=1500)], expected=ANY)
    report = deliver(store)
    assert dead_letters(store) == [("parcel-0", "InvalidPredicate"), ("parcel-1", "InvalidPredicate")]
    assert report.handled == 1


@pytest.mark.parametrize("named_by", ["the branches", "the subscription", "both"])
def test_of_a_store_with_events_of_two_services_a_branch_takes_those_of_its_own(store, named_by):
    for number, source in enumerate(["/shop", "/billing"]):
        with SqlEventStore(store.engine, source=source) as one:
            one.declare_category("parcel", partitions=1, topic="parcel")
            one.append(f"parcel-{number}", [Parcel.Weighed(grams=1500)], expected=ANY)
    ours = PARCELS if named_by == "the subscription" else replace(PARCELS, source="/shop")
    chosen = lift if named_by == "the branches" else replace(lift, source="/shop")
    with Subscriber(chosen, branch_source(store, chosen, ours), engine=store.engine) as subscriber:
        report = subscriber.run_once(timeout=0)
    assert (report.handled, dead_letters(store)) == (1, [("parcel-1", "ForeignRecord")])


def test_a_subscription_of_another_service_than_its_branches_is_refused(store):
    with pytest.raises(InvalidDefinition, match="takes events of '/billing', its branches those of '/shop'"):
        branch_source(store, replace(lift, source="/billing"), replace(PARCELS, source="/shop"))


def test_a_topic_that_is_no_branch_is_refused_with_those_there_are(store):
    @subscription("parcel.middling", group="lifters")
    def nothing(event: Parcel.Weighed) -> None: ...

    with pytest.raises(InvalidDefinition, match=r"'parcel\.middling' is no branch") as caught:
        deliver(store, nothing)
    assert "parcel.heavy, parcel.light" in caught.value.remedy
