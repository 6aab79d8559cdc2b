"""A topic has each final result once: over generations, restarts and kills, on both databases; no Spark, no broker."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
import sqlalchemy as sa

from eventstore.errors import TopicMismatch, TopicMissing
from eventstore.kafka.admin import topic_missing
from projections.errors import InvalidDefinition
from projections.outputs.publishing import opened_publisher, prepare_topics
from projections.stores import outbox
from projections.stores.own_tables import own_tables
from projections.testing.memory_log import MemoryViewTopics
from tests.conformance.topic_folds import TOPIC, Died, Finals, dies_instead_of, group_of
from tests.tiers import first_of


@pytest.fixture
def shop(store):
    return Finals(store)


@pytest.mark.both_databases
def test_each_result_comes_into_the_topic_once_and_in_order_through_a_cut_over_and_a_rollback(shop):
    first, its_layout = shop.serve(group_of(), range(6))
    assert shop.give_out(first, its_layout, 3) == 2
    assert (shop.waiting(), shop.publish(group_of()), shop.publish(group_of())) == ({TOPIC: 2}, 2, 0)
    run, layout = shop.serve(group_of(2), range(7))
    shop.give_out(run, layout, 5)
    shop.publish(group_of(2))
    first = shop.serve_again(group_of(), first, its_layout)
    shop.give_out(first, its_layout, 30)
    shop.publish(group_of())
    assert shop.ids() == [0, 1, 2, 3, 4, 5]
    assert shop.log.records(TOPIC) == shop.given()
    assert shop.waiting() == {TOPIC: 0}


def test_a_generation_that_does_not_serve_publishes_nothing(shop):
    retired, its_layout = shop.serve(group_of(), [0])
    shop.serve(group_of(2), [])
    built, layout = shop.built(group_of(3), [1])
    assert shop.give_out(retired, its_layout, 30) + shop.give_out(built, layout, 30) == 0
    assert shop.publish(group_of(2)) == 0


def killed_after_sending(shop, monkeypatch):
    """A publisher that dies when its results are in the topic, and the database does not know it."""
    run, layout = shop.serve(group_of(), range(6))
    shop.give_out(run, layout, 3)
    with dies_instead_of(outbox, "note_sent", monkeypatch), pytest.raises(Died):
        shop.publish(group_of())
    assert shop.ids() == [0, 1]
    shop.give_out(run, layout, 30)
    shop.publish(group_of())
    assert shop.ids() == [0, 1, 2, 3, 4, 5]


@pytest.mark.both_databases
def test_a_publisher_that_is_killed_after_sending_is_followed_by_one_that_leaves_out_what_is_there(shop, monkeypatch):
    killed_after_sending(shop, monkeypatch)
    assert shop.waiting() == {TOPIC: 0}


def test_a_publisher_that_is_killed_before_sending_loses_nothing(shop, monkeypatch):
    run, layout = shop.serve(group_of(), range(3))
    shop.give_out(run, layout, 30)
    with dies_instead_of(MemoryViewTopics, "send", monkeypatch), pytest.raises(Died):
        shop.publish(group_of())
    shop.publish(group_of())
    assert shop.ids() == [0, 1, 2]


@pytest.mark.parametrize("killed", range(4))
def test_a_publisher_that_is_killed_after_any_chunk_sends_none_twice(shop, monkeypatch, killed):
    monkeypatch.setattr(outbox, "CHUNK_ROWS", 2)
    run, layout = shop.serve(group_of(), range(7))
    shop.give_out(run, layout, 30)
    die_in_publishing(shop, monkeypatch, 1, killed, sending=False)
    assert shop.waiting()[TOPIC] > 0
    shop.publish(group_of())
    assert shop.ids() == list(range(7))


def test_a_publisher_looks_at_no_more_of_a_topic_than_what_was_sent_last(shop, monkeypatch):
    run, layout = shop.serve(group_of(), range(5))
    looked, keys_between = [], MemoryViewTopics.keys_between

    def noted(topics, topic, start, end):
        looked.append(end[0] - start.get(0, 0))
        return keys_between(topics, topic, start, end)

    monkeypatch.setattr(MemoryViewTopics, "keys_between", noted)
    for minute in range(2, 7):
        shop.give_out(run, layout, minute)
        shop.publish(group_of())
    assert looked == [0, 1, 1, 1, 1]


def test_what_another_publisher_notes_meanwhile_is_not_taken_back(shop):
    run, layout = shop.serve(group_of(), range(3))
    shop.give_out(run, layout, 2)
    with shop.store.looking() as connection:
        unsent = outbox.first_unsent(connection, "sold", TOPIC)
    shop.publish(group_of())
    with shop.store.transaction() as connection:
        assert not outbox.note_sent(connection, unsent, ends={0: 0})
    shop.give_out(run, layout, 30)
    shop.publish(group_of())
    assert shop.ids() == [0, 1, 2]


def test_a_publisher_whose_note_is_refused_looks_again_and_sends_the_rest(shop, monkeypatch):
    run, layout = shop.serve(group_of(), range(3))
    shop.give_out(run, layout, 30)
    note_sent, refused = outbox.note_sent, []

    def refused_once(connection, unsent, *, ends):
        if not refused:
            refused.append(unsent)
            outbox.note_topics(connection, {}, made=[TOPIC])  # as a rebuild notes a topic that was made anew
        return note_sent(connection, unsent, ends=ends)

    monkeypatch.setattr(outbox, "note_sent", refused_once)
    shop.publish(group_of())
    assert (shop.ids(), shop.waiting()) == ([0, 1, 2], {TOPIC: 0})


@pytest.mark.both_databases
def test_a_topic_that_was_deleted_is_filled_again_with_every_result(shop):
    run, layout = shop.serve(group_of(), range(4))
    shop.give_out(run, layout, 3)
    shop.publish(group_of())
    shop.log._topics.pop(TOPIC)
    shop.give_out(run, layout, 4)
    assert shop.publish(group_of()) == 3
    assert shop.ids() == [0, 1, 2]
    shop.serve(group_of(2), range(4))
    assert shop.publish(group_of(2)) == 0


def test_a_publisher_whose_topic_is_deleted_says_that_the_next_one_fills_it(shop, monkeypatch):
    run, layout = shop.serve(group_of(), [0])
    with opened_publisher(shop.environment, group_of()) as publisher, monkeypatch.context() as patched:
        shop.give_out(run, layout, 3)
        patched.setattr(MemoryViewTopics, "ends", lambda self, topic: refuse(topic))
        with pytest.raises(TopicMissing, match="'final-rows' was deleted, and final results wait for it") as caught:
            publisher.publish()
    assert caught.value.remedy == "start the runner again: it creates the topic, and publishes every result"
    assert shop.publish(group_of()) == 1


def refuse(topic):
    raise topic_missing(topic, "a broker")


def test_a_topic_that_somebody_made_anew_is_filled_but_for_what_a_runner_has_put_into_it(shop, monkeypatch):
    run, layout = shop.serve(group_of(), range(4))
    for minute in (2, 3):
        shop.give_out(run, layout, minute)
        shop.publish(group_of())
    kept = shop.log.records(TOPIC)[1]
    shop.log._topics[TOPIC] = [kept]
    monkeypatch.setattr(type(shop.log), "topic_ids", lambda self, topics: dict.fromkeys(topics, "another"))
    shop.give_out(run, layout, 30)
    shop.publish(group_of())
    assert shop.ids() == [1, 0, 2, 3]


def test_a_topic_that_is_declared_later_gets_the_results_that_were_given_out_before(shop):
    run, layout = shop.serve(group_of(topic=None), range(3))
    shop.give_out(run, layout, 3)
    assert (shop.waiting(), shop.publish(group_of(topic=None))) == ({}, 0)
    run, layout = shop.serve(group_of(2), range(3))
    shop.publish(group_of(2))
    assert shop.ids() == [0, 1]


@pytest.mark.both_databases
def test_a_topic_goes_on_where_it_stands_after_a_version_that_has_none(shop):
    first, its_layout = shop.serve(group_of(), range(4))
    shop.give_out(first, its_layout, 3)
    shop.publish(group_of())
    without, layout = shop.serve(group_of(2, topic=None), range(4))
    shop.give_out(without, layout, 4)
    assert (shop.waiting(), shop.publish(group_of(2, topic=None)), shop.ids()) == ({}, 0, [0, 1])
    first = shop.serve_again(group_of(), first, its_layout)
    shop.give_out(first, its_layout, 30)
    shop.publish(group_of())
    assert shop.ids() == [0, 1, 2, 3]


def test_a_database_that_is_restored_from_a_backup_publishes_nothing_again(shop):
    run, layout = shop.serve(group_of(), range(5))
    shop.give_out(run, layout, 2)
    shop.publish(group_of())
    with shop.store.looking() as connection:
        tables = own_tables(connection)
        backup = {
            t: dict(connection.execute(sa.select(t)).mappings().one()) for t in (tables.passed, tables.final_topics)
        }
    shop.give_out(run, layout, 4)
    shop.publish(group_of())
    with shop.store.transaction() as connection:
        connection.execute(sa.delete(tables.results).where(tables.results.c.seq > 1))
        for table, values in backup.items():
            connection.execute(sa.update(table).values(values))
    for minute in (3, 4, 5, 30):  # one after the other, by publishers of their own
        shop.give_out(run, layout, minute)
        shop.publish(group_of())
    assert shop.ids() == [0, 1, 2, 3, 4]


STEPS = ["give out", "give out", "give out", "publish", "die sending", "die noting", "die noting", "cut over", "delete"]


@first_of("seed", 0, 1, 2, 3, 4, indirect=False)
def test_a_topic_is_the_table_of_its_results_after_any_history_of_kills_cut_overs_and_deletions(
    shop, monkeypatch, seed
):
    chosen, minute, version = random.Random(seed), 0, 1
    run, layout = shop.serve(group_of(), range(99))
    monkeypatch.setattr(outbox, "CHUNK_ROWS", 3)
    for _ in range(50):
        match chosen.choice(STEPS):
            case "give out":
                minute += chosen.randrange(6)
                shop.give_out(run, layout, minute)
            case "publish":
                shop.publish(group_of(version))
            case "die sending" | "die noting" as when:
                die_in_publishing(shop, monkeypatch, version, chosen.randrange(3), sending=when == "die sending")
            case "cut over":
                version += 1
                run, layout = shop.serve(group_of(version), range(99))
            case "delete":
                shop.log._topics.pop(TOPIC)
                prepare_topics(shop.environment, group_of(version))
    shop.publish(group_of(version))
    assert len(shop.given()) > 10
    assert shop.log.records(TOPIC) == shop.given()


def die_in_publishing(shop, monkeypatch, version, after, *, sending):
    """A publisher that dies after so many chunks, instead of sending or of noting one, where there are so many."""
    where, name = (MemoryViewTopics, "send") if sending else (outbox, "note_sent")
    done, calls = getattr(where, name), []

    def until_killed(*arguments, **options):
        calls.append(name)
        if len(calls) > after:
            raise Died
        return done(*arguments, **options)

    with monkeypatch.context() as patched, suppress(Died):
        patched.setattr(where, name, until_killed)
        shop.publish(group_of(version))


def test_rows_and_final_results_of_a_view_have_topics_of_their_own(shop):
    group = group_of(rows="rows")
    run, layout = shop.serve(group, range(2))
    shop.give_out(run, layout, 2)
    assert shop.publish(group) == 3
    assert (shop.ids("rows"), shop.ids()) == ([0, 1], [0])


def test_topics_of_others_are_refused(shop):
    shop.log.append("taken", b"k", b"{}")
    with pytest.raises(TopicMismatch, match="no view of this database wrote"):
        prepare_topics(shop.environment, group_of(topic="taken"))
    shop.serve(group_of(rows="rows"), range(2))
    for other, holds in (
        (group_of(name="other"), "the final results of view 'sold' of group 'sold'"),
        (group_of(topic="rows"), "the rows of view 'sold' of group 'sold'"),
        (group_of(topic="others", rows=TOPIC), "the final results of view 'sold' of group 'sold'"),
    ):
        with pytest.raises(InvalidDefinition, match=holds) as caught:
            prepare_topics(shop.environment, other)
        assert caught.value.remedy == "give the view a topic of another name"
