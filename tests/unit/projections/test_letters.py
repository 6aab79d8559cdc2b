"""Records that a router gave up, and those that a projection set aside, as letters."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
import sqlalchemy as sa

from eventstore import Aggregate, event
from eventstore.deadletters import by_cause
from eventstore.errors import NotFound, ReplayRefused
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder, AvroEncoder
from eventstore.schema_registry import RegisteredSchema
from eventstore.topics import BRANCH_HEADER, TopicRecord
from factfold.watching.metrics import Letters as Watched
from factfold.watching.metrics import WatchMetrics
from projections import ProjectionGroup, branches, field, of_type
from projections import letters as opened
from projections.branching.letters import routed_again
from projections.errors import InvalidDefinition, NoServingGeneration, ProjectionError, UnknownSchemaId
from projections.faults import MESSAGES, Fault
from projections.logs.port import arrow_record_schema
from projections.logs.set_aside import FAULTS, SetAside, require_bearable
from projections.stores.aside import note_set_aside, read_set_aside
from projections.stores.sqlite import SqliteTableStore
from tests.commands import factfold
from tests.conformance.ticket_batches import COLUMNS, GROUP, served, ticket_names
from tests.errors import raises
from tests.reference import route
from tests.rows import each_row


class Payment(Aggregate):
    @event
    class Received:
        amount: Decimal

    @event
    class Refunded:
        amount: Decimal


class Elsewhere(Aggregate):
    @event
    class Happened:
        amount: Decimal


PAYMENTS = branches(
    Payment, {"suspicious": field("amount") > 900, "refunds": of_type(Payment.Refunded)}, otherwise="validated",
    topic="payment",
)  # fmt: skip
KINDS = [*Payment.event_types.values(), *Elsewhere.event_types.values()]
SCHEMAS: dict[int, RegisteredSchema] = {kind.registered.id: kind.registered for kind in KINDS}
DECODER = AvroDecoder(SCHEMAS.__getitem__)


def letter(made, *, source=b"/payments", partition=3):
    value = made if isinstance(made, bytes) else event_type_of(made).encode(made)
    headers = (
        ("ce_source", source), ("traceparent", None), ("dead_letter_topic", b"payment"),
        ("dead_letter_partition", b"%d" % partition), ("dead_letter_offset", b"7"), ("dead_letter_error", b"X"),
    )  # fmt: skip
    return TopicRecord("payment.dead-letter", 0, 4, b"payment-1@0", value, headers, 0)


@pytest.mark.parametrize(
    ("made", "branch"),
    [(Payment.Received(amount=Decimal(901)), "suspicious"), (Payment.Refunded(amount=Decimal(1)), "refunds"),
     (Payment.Received(amount=Decimal(1)), "validated")],
)  # fmt: skip
def test_a_letter_goes_to_its_branch_and_partition_as_the_router_routes_it(made, branch):
    record = letter(made)
    sent = routed_again(record, PAYMENTS, DECODER)
    assert (sent.topic, sent.partition, sent.key, sent.value) == (f"payment.{branch}", 3, record.key, record.value)
    assert sent.headers == (("ce_source", b"/payments"), ("traceparent", None), (BRANCH_HEADER, branch.encode()))
    ((_, topic, error),) = route(PAYMENTS, [record], SCHEMAS)
    assert (topic, error) == (sent.topic, None)


@pytest.mark.parametrize(
    ("made", "cause"),
    [(b"{}", "NotFramedAvro"), (Elsewhere.Happened(amount=Decimal(1)), "UnknownEventType")],
)
def test_what_would_be_a_dead_letter_again_stays_open_with_its_cause(made, cause):
    record = letter(made)
    with pytest.raises(ReplayRefused, match=cause):
        routed_again(record, PAYMENTS, DECODER)
    ((_, topic, error),) = route(PAYMENTS, [record], SCHEMAS)
    assert (topic, error) == ("payment.dead-letter", cause)


def test_another_service_s_record_stays_open():
    owned = dataclasses.replace(PAYMENTS, source="/shop")
    with pytest.raises(ReplayRefused, match="ForeignRecord"):
        routed_again(letter(Payment.Received(amount=Decimal(1))), owned, DECODER)


def test_a_predicate_that_cannot_be_put_to_a_record_leaves_it_open():
    texts = RegisteredSchema.of(
        {"type": "record", "namespace": "payment", "name": "received", "version": 1,
         "fields": [{"name": "amount", "type": "boolean"}]}
    )  # fmt: skip
    record = letter(AvroEncoder(texts).encode({"amount": True}))
    with pytest.raises(ReplayRefused, match="dead letter again"):
        routed_again(record, PAYMENTS, AvroDecoder(lambda _: texts))


# ---- records that a projection group has set aside are listed and discarded; a rebuild reads them again


@pytest.fixture
def noted(tmp_path):
    """A store whose serving generation has set records of two topics aside."""
    store = SqliteTableStore(tmp_path / "views.db")
    store.prepare()
    served(store)
    _, layout = store.serving(GROUP, COLUMNS)
    faults = [("ticket", 0, 3, "bad_avro", "7"), ("ticket", 1, 9, "bad_avro", "8"), ("ticket", 0, 5, "no_time", "x"),
              ("other", 0, 1, "bad_json", "")]  # fmt: skip
    columns = [list(column) for column in zip(*faults, strict=True)]
    with store.transaction() as connection:
        note_set_aside(connection, layout, SetAside(pa.table(columns, schema=FAULTS)))
    yield store, layout
    store.close()


def letters_of(store, topic="ticket"):
    return opened(store, topic, group=GROUP.name)


def test_records_set_aside_are_grouped_by_their_fault(noted):
    letters = letters_of(noted[0])
    first, second = by_cause(letters.open())
    assert (first.error, first.count, sorted(first.letters)) == ("bad_avro", 2, ["0@3", "1@9"])
    assert (second.error, second.letters) == ("no_time", ("0@5",))
    shown = letters.show("1@9")
    assert (shown.letter.origin, shown.payload) == ("ticket[1]@9", None)


def test_a_discarded_record_is_not_listed_and_stays_set_aside(noted):
    store, layout = noted
    letters = letters_of(store)
    assert letters.discard(["0@3"], why="known", by="ann").count == 1
    assert [letter.id for letter in letters.open()] == ["0@5", "1@9"]
    assert [(one.letter, one.by, one.why, one.result) for one in letters.actions()] == [
        ("0@3", "ann", "known", "discarded")
    ]
    metrics = WatchMetrics()
    Watched(metrics).look_at_views(store)
    labels = {"home": "views", "group": GROUP.name}
    counts = [metrics.registry.get_sample_value("factfold_dead_letters_open", {**labels, "topic": topic})
              for topic in ("ticket", "other")]  # fmt: skip
    assert counts == [2, 1]
    with store.transaction() as connection:
        before = {"ticket": {0: 10, 1: 10}, "other": {0: 10}}
        assert len(read_set_aside(connection, layout, before=before)) == 4
    with raises(NotFound, code="letter-missing"):
        letters.discard(["0@3"])


def test_a_record_that_is_set_aside_anew_is_listed_again(noted):
    """As a rebuild notes it, of the same topic or of one that was made anew."""
    store, layout = noted
    letters_of(store).discard(["0@3"])
    with store.transaction() as connection:
        later = sa.update(layout.aside).where(layout.aside.c.offset == 3)
        connection.execute(later.values(time=datetime(2030, 1, 1, tzinfo=UTC)))
    assert len(list(letters_of(store).open())) == 3


def test_all_of_one_topic_are_discarded_and_those_of_another_stay(noted):
    store, _ = noted
    assert letters_of(store).discard().count == 3
    assert not list(letters_of(store).open())
    assert len(list(letters_of(store, "other").open())) == 1


def test_a_replay_is_refused_with_the_way_to_read_them_again(noted):
    with raises(ReplayRefused, match="in its log", remedy="factfold projections rebuild"):
        letters_of(noted[0]).replay()


def test_a_group_that_was_not_built_is_told(noted):
    with pytest.raises(NoServingGeneration):
        opened(noted[0], "ticket", group="no_such_group")


def test_the_command_lists_and_discards_what_was_set_aside(noted):
    url = f"sqlite:///{noted[0].path}"

    def run(command, *options):
        done = factfold("dlq", command, "ticket", GROUP.name, "--views-url", url, "--json", *options)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert [cause["count"] for cause in run("list")] == [2, 1]
    assert run("discard", "--all", "--yes")["settled"] == 3
    assert run("list") == []


# ---- records set aside


def aside(*faults):
    return SetAside.of(pa.table([list(c) for c in zip(*faults, strict=True)], schema=FAULTS))


def records(topic, *places):
    columns = {"topic": [topic] * len(places), "partition": [p for p, _ in places], "offset": [o for _, o in places]}
    nothing = [None] * len(places)
    return pa.table({**columns, "key": nothing, "value": nothing}, schema=arrow_record_schema(headed=False))


FIRST, SECOND = ("t", 0, 7, "bad_json", None), ("t", 1, 7, "bad_value", "x")


def test_a_record_with_two_faults_is_set_aside_once_for_the_first():
    found = aside(FIRST, SECOND) | aside(("t", 0, 7, "no_source_time", None))
    assert [(f.partition, f.kind) for f in found] == [(0, "bad_json"), (1, "bad_value")]
    assert found.counts() == {"bad_json": 1, "bad_value": 1}


def test_records_are_left_out_by_topic_partition_and_offset():
    found = aside(FIRST, SECOND, ("t", 300_000, 1 << 40, "bad_json", None))
    left = found.left_out_of(records("t", (0, 7), (0, 8), (1, 7), (2, 7), (300_000, 1 << 40)))
    assert list(zip(left["partition"].to_pylist(), left["offset"].to_pylist(), strict=True)) == [(0, 8), (2, 7)]
    other = records("u", (0, 7))
    assert found.left_out_of(other) == other
    assert SetAside.nothing().left_out_of(other) == other


@each_row("kind", sorted(MESSAGES))
def test_every_kind_of_fault_is_told_with_a_place_and_a_remedy(kind):
    error = Fault("t", 3, 9, kind, "detail").error
    assert error.remedy
    assert error.place == "topic t, partition 3, offset 9"
    assert "{" not in error.message


def test_an_unknown_schema_is_an_error_of_its_own():
    error = Fault("t", 3, 9, "unknown_schema", "77").error
    assert isinstance(error, UnknownSchemaId)
    assert error.schema_id == 77


def test_more_bad_records_than_are_noted_are_no_exception(monkeypatch):
    monkeypatch.setattr("projections.logs.set_aside.MOST_BAD", 1)
    require_bearable(1)
    with raises(ProjectionError, code="too-many-bad-records", match="more than 1 records"):
        require_bearable(2)


def test_a_group_says_what_becomes_of_bad_records_and_its_views_are_the_same():
    strict, tolerant = (ProjectionGroup("t", [ticket_names], bad_records=s) for s in ("fail", "skip"))
    assert strict.fingerprint() == tolerant.fingerprint()
    with pytest.raises(InvalidDefinition, match="has bad_records='ignore'"):
        ProjectionGroup("t", [ticket_names], bad_records="ignore")
