"""Dead letters of Kafka topics: replayed to one group or a topic, discarded, and neither lost nor sent twice."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from eventstore import ANY, SqlEventStore, open_subscriber
from eventstore.deadletters import by_cause
from eventstore.deadletters import topic as topic_letters
from eventstore.deadletters.topic import Chosen, to_group, to_topic
from eventstore.errors import NotFound, ProducerFenced, ReplayRefused
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder
from eventstore.kafka.admin import OffsetReader, ensure_topics, quiet
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord, Publisher, RecordProducer
from eventstore.topics import branch_topic, dead_letter_topic, event_topic
from projections import branches, field
from projections import letters as letters_of
from tests.errors import raises
from tests.integration.delivering import booking, deliver
from tests.integration.log_writer import LogWriter
from tests.ledger import Payment, amounts
from tests.unit.eventstore.handlers import deliver_stored
from tests.waiting import wait_until


@pytest.fixture
def given_up(settings, payments, engine):
    """A function that gives amounts up, and returns the letters of the group."""

    def give_up(*refused, group="books"):
        payments.receive(list(refused), partition=3)
        declared = booking(payments.name, group=group, fails_on=refused, attempts=2)
        with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
            assert deliver(subscriber, records=len(refused)).dead == len(refused)
        return letters_of(settings, payments.name, group=group)

    return give_up


def retried(settings, payments, group="books"):
    return list(read_range(settings, f"{payments.name}.{group}.retry"))


def own(record):
    return [pair for pair in record.headers if not pair[0].startswith("dead_letter_")]


def test_letters_are_listed_shown_and_replayed_to_the_retry_topic_untouched_or_edited(settings, payments, given_up):
    with given_up(1, 2) as letters:
        (cause,) = by_cause(letters.open())
        assert (cause.error, cause.pattern, cause.letters) == ("ValueError", "no room for …", ("0@0", "0@1"))
        shown = letters.show("0@1")
        assert (shown.payload, shown.letter.origin) == ({"amount": 2}, f"{payments.name}[3]@1")
        assert letters.replay(["0@1"], by="ann").count == 1
        assert [letter.id for letter in letters.open()] == ["0@0"]
        (action,) = letters.actions()
        assert (action.by, action.to, action.result, action.origin) == ("ann", "group", "sent", f"{payments.name}[3]@1")
        letters.replay(["0@0"], edit={"amount": 6})
        assert [action.edited for action in letters.actions()] == [False, True]
    sent, edited = retried(settings, payments)
    first, original = read_range(settings, payments.name)
    assert (sent.key, sent.value, own(sent)) == (original.key, original.value, list(original.headers))
    assert len(sent.headers) == len(original.headers)
    assert (amount(edited), dict(edited.headers)["ce_id"]) == (6, dict(first.headers)["ce_id"])


def test_a_letter_replayed_to_its_topic_is_handled_and_other_groups_drop_it(settings, payments, engine, given_up):
    with (
        given_up(1) as letters,
        open_subscriber(booking(payments.name, group="others"), settings=settings, engine=engine) as others,
    ):
        deliver(others, records=1)
        assert letters.replay(to="topic").count == 1
        with open_subscriber(booking(payments.name), settings=settings, engine=engine) as subscriber:
            assert deliver(subscriber, records=1).handled == 1
        report = deliver(others, records=2)
    assert (report.handled, report.duplicates) == (1, 1)
    assert amounts(engine) == [1, 1]


def test_a_command_killed_between_two_transactions_goes_on_where_it_stood(settings, payments, given_up, monkeypatch):
    monkeypatch.setattr(topic_letters, "_LETTERS", 2)
    monkeypatch.setattr(Publisher, "commit", killed_at(2))
    with given_up(1, 2, 3, 4) as letters:
        with pytest.raises(KeyboardInterrupt):
            letters.replay()
        assert len(list(letters.open())) == 2
        assert letters.replay().count == 2
        assert letters.replay().count == 0
    assert [amount(record) for record in retried(settings, payments)] == [1, 2, 3, 4]


def test_of_two_commands_at_once_the_later_one_goes_on_and_no_letter_is_sent_twice(
    settings, payments, given_up, monkeypatch
):
    monkeypatch.setattr(topic_letters, "_LETTERS", 2)

    def another(done, total):
        with letters_of(settings, payments.name, group="books") as beside:
            assert beside.replay().count == 2

    with given_up(1, 2, 3, 4) as letters:
        with pytest.raises(ProducerFenced):
            letters.replay(on_progress=another)
        assert not list(letters.open())
    assert [amount(record) for record in retried(settings, payments)] == [1, 2, 3, 4]


def killed_at(number):
    """A commit that ends the process at its so-manieth call, before the broker is asked."""
    commits, commit = [], Publisher.commit

    def counted(publisher):
        commits.append(publisher)
        if len(commits) == number:
            raise KeyboardInterrupt
        commit(publisher)

    return counted


def amount(record):
    kind = event_type_of(Payment.Received(amount=0))
    return AvroDecoder(lambda _: kind.registered).decode(record.value)[1]["amount"]


def test_a_record_that_cannot_be_read_is_replayed_as_it_is_and_not_edited(settings, payments, engine):
    payments.put([payments.record(Payment.Received(amount=1), partition=0, value=b"{}")])
    with open_subscriber(booking(payments.name), settings=settings, engine=engine) as subscriber:
        deliver(subscriber, records=1)
    with letters_of(settings, payments.name, group="books") as letters:
        assert "Confluent frame" in letters.show("0@0").problem
        assert "cannot be edited" in letters.replay(["0@0"], edit={"amount": 1}).left["0@0"]
        assert letters.replay().count == 1
    assert [record.value for record in retried(settings, payments)] == [b"{}"]


def test_a_compacted_topic_and_a_group_that_reads_nothing_are_refused(settings, payments, given_up):
    with given_up(1) as letters, pytest.raises(ReplayRefused, match="cannot be sent to a branch"):
        letters.replay(to="branch")
    compacted = f"{payments.name}.events"
    ensure_topics(settings, [event_topic(compacted, partitions=1)])
    with pytest.raises(ReplayRefused, match="is compacted: a repeated event"):
        to_topic(settings, compacted, Chosen([], edited=False), group=None)
    with pytest.raises(ReplayRefused, match="is compacted: an edited event"):
        to_topic(settings, compacted, Chosen([], edited=True), group="views")
    with pytest.raises(ReplayRefused, match="group 'typo' has no place"):
        to_group(settings, payments.name, "typo")
    with raises(NotFound, code="letter-missing", match="no dead-letter topic"):
        letters_of(settings, payments.name, group="typo")


def test_a_projection_s_letters_go_back_to_a_compacted_topic_as_whole_ends_of_streams(settings):
    writer = LogWriter(settings, Payment)
    topic = writer.events_topic
    sent = [writer.event(stream, Payment.Received(amount=n)) for n in (1, 2, 3) for stream in ("a", "b")]
    writer.send(sent)
    originals = [one for one in read_range(settings, topic) if one.key != b"payment-b@2"]
    name = f"{topic}.views.dead-letter"
    ensure_topics(settings, [dead_letter_topic(name)])
    headers = [(one, (("dead_letter_topic", topic), ("dead_letter_partition", one.partition),
                      ("dead_letter_offset", one.offset))) for one in originals]  # fmt: skip
    RecordProducer(settings).send(
        OutgoingRecord(topic=name, key=one.key, value=one.value, headers=tuple((k, str(v).encode()) for k, v in told))
        for one, told in headers
    )
    with letters_of(settings, topic, group="views") as letters:
        done = letters.replay(to="topic")
        assert done.count == 3
        assert all("events of payment-b that" in why for why in done.left.values())
        assert len(list(letters.open())) == len(done.left) == 2
    keys = [one.key.decode() for one in read_range(settings, topic)]
    assert [key for key in keys if "-a@" in key] == ["payment-a@0", "payment-a@1", "payment-a@2"] * 2
    assert [key for key in keys if "-b@" in key] == ["payment-b@0", "payment-b@1", "payment-b@2"]


def test_a_letter_replayed_to_its_group_comes_to_it_alone_and_is_open_again_where_it_dies_again(
    settings, payments, engine, given_up
):
    with given_up(1) as letters:
        letters.replay()
        assert len(list(read_range(settings, payments.name))) == 1  # other groups read this topic alone
        declared = booking(payments.name, fails_on=[1], attempts=1)
        with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
            assert deliver(subscriber, records=1).dead == 1
        assert [letter.id for letter in letters.open()] != ["0@0"]
        assert letters.replay().count == 1
        with open_subscriber(booking(payments.name), settings=settings, engine=engine) as subscriber:
            assert deliver(subscriber, records=1).handled == 1
        assert not list(letters.open())
        assert [action.result for action in letters.actions()] == ["sent", "sent"]
    assert amounts(engine) == [1]


def test_an_old_mark_hides_no_letter_of_a_dead_letter_topic_made_anew(settings, payments, given_up):
    name = f"{payments.name}.books.dead-letter"
    with given_up(1) as letters:
        assert letters.discard().count == 1
    admin = AdminClient(quiet(settings.kafka))
    admin.delete_topics([name])[name].result(10)
    with OffsetReader(settings) as offsets:
        wait_until(lambda: not offsets.existing([name]), what="the topic to be gone")
    ensure_topics(settings, [dead_letter_topic(name)])
    RecordProducer(settings).send([OutgoingRecord(topic=name, key=b"k", value=b"{}")])
    with letters_of(settings, payments.name, group="books") as letters:
        assert [letter.id for letter in letters.open()] == ["0@0"]
        assert len(list(letters.actions())) == 1


def test_letters_of_branches_are_routed_again_by_the_definition_and_others_stay_open(settings, payments):
    declared = branches(Payment, {"large": field("amount") > 900}, otherwise="small", topic=payments.name)
    specs = [branch_topic(topic, partitions=4) for topic in declared.topics.values()]
    ensure_topics(settings, [*specs, dead_letter_topic(declared.dead_letter_topic, partitions=4)])
    end = (("dead_letter_topic", payments.name.encode()), ("dead_letter_partition", b"2"))
    given = [payments.record(Payment.Received(amount=n)) for n in (1, 1000)]
    given.append(payments.record(Payment.Received(amount=5), value=b"{}"))
    RecordProducer(settings).send(
        OutgoingRecord(topic=declared.dead_letter_topic, key=one.key, value=one.value, headers=(*one.headers, *end))
        for one in given
    )
    with letters_of(settings, payments.name) as unnamed, pytest.raises(ReplayRefused, match="the definition"):
        unnamed.replay()
    with letters_of(settings, declared) as letters:
        done = letters.replay()
        assert done.count == 2
        assert "NotFramedAvro" in str(done.left)
        assert [letter.id for letter in letters.open()] == list(done.left)
    for topic, amounts_of in zip(declared.topics.values(), ([1000], [1]), strict=True):
        (sent,) = read_range(settings, topic)
        assert ([amount(sent)], sent.partition) == (amounts_of, 2)
        assert dict(sent.headers)["factfold_branch"] == topic.rpartition(".")[2].encode()


def test_letters_of_a_store_in_postgresql_are_replayed_and_discarded_once(engine):
    with SqlEventStore(engine) as store:
        store.create_tables()
        for number in (1, 2, 3):
            store.append("payment-1", [Payment.Received(amount=number)], expected=ANY)

        def delivered(**options):
            return deliver_stored(store, booking("payment", attempts=1, **options))

        assert delivered(fails_on=[2, 3]).dead == 2
        letters = letters_of(store, "payment", group="books")
        first, second = letters.open()
        assert letters.discard([second.id]).count == letters.replay([first.id], edit={"amount": 7}).count == 1
        assert delivered(fails_on=[7]).dead == 1
        assert letters.replay().count == delivered().handled == 1
        assert not list(letters.open())
    assert amounts(engine) == [1, 2]
    assert [action.result for action in letters.actions()] == ["discarded", "dead", "handled"]
