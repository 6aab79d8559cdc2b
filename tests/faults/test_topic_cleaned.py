"""T9, second half: a relay is killed, streams are deleted, its topic is cleaned by force, views are rebuilt from it.

FACTFOLD_KILLS sets how often the relay is killed, each time in an open transaction; while it is dead, streams are
deleted of which the topic holds a part. The checker is plain Python over the store.
"""

from __future__ import annotations

import os
import random
import threading
import time
from functools import partial

import pytest
import sqlalchemy as sa

from eventstore.relay import Relay
from eventstore.topics import message_key
from projections import Archiver, ProjectionGroup, Table, on, open_runner, rebuild, view
from projections.errors import OffsetsLost
from projections.spark.archive.delta_archive import DeltaArchive
from tests.crates import Crate, faults, fill
from tests.faults.relayed_topic import CANARY, STREAMS, Load, wait_for_the_last
from tests.waiting import wait_until

KILLS = int(os.environ.get("FACTFOLD_KILLS", "5"))
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
pytestmark = pytest.mark.faults  # the topic is cleaned by force
# Deleted in each round; with 200 events each they are most of a full page of the relay.
DOOMED = 20


def crate_group(topic):
    """A view of each fold over a topic of crates: by evolve in Python, and by declared columns in the JVM."""
    folded = Table.from_events(Crate, key="crate", topic=topic)
    declared = Table.from_events(Crate, key="crate", columns={"last": on(Crate.Filled).take("grams")}, topic=topic)

    @view(key="crate", tables={"folded": folded})
    def crate_sums(folded):
        return folded

    @view(key="crate", tables={"declared": declared})
    def crate_lasts(declared):
        return declared

    return ProjectionGroup(f"crates_{topic.rpartition('.')[2]}", [crate_sums, crate_lasts])


def shown(env):
    """What the views show: by crate, how often it was filled, with how much, and with how much last."""
    with env.store.transaction() as connection:
        sums = connection.execute(sa.text("SELECT crate, fillings, grams FROM crate_sums")).all()
        lasts = connection.execute(sa.text("SELECT crate, last FROM crate_lasts")).all()
    last = {row.crate: row.last for row in lasts}
    assert last.keys() == {row.crate for row in sums}
    return {row.crate: (row.fillings, row.grams, last[row.crate]) for row in sums}


def expected(store):
    """The same by plain Python over the store."""
    rows = {}
    for recorded in store.read_all(category="crate"):
        fillings, grams, _ = rows.get(recorded.stream, (0, 0, 0))
        rows[recorded.stream] = (fillings + 1, grams + recorded.data["grams"], recorded.data["grams"])
    return {stream.removeprefix("crate-"): row for stream, row in rows.items()}


def doomed(number):
    first = 2 * STREAMS + number * DOOMED
    return range(first, first + DOOMED)


def held_of(crates, topic, start=None):
    """How many events of these crates the topic holds, from offsets by partition on."""
    keys = {message_key(f"crate-{crate}", version).encode() for crate in crates for version in range(3)}
    return sum(record.key in keys for record in topic.records(start=start))


def delete(store, crates):
    for crate in crates:
        store.delete_stream(f"crate-{crate}", expected=store.head(f"crate-{crate}"))


def relay_once(store, settings):
    return Relay(store, settings).run(stop=threading.Event(), once=True).events


def killed_again_and_again(crates, settings, topic, start_relay):
    """Relay a load; return how many events the topic held that were deleted."""
    relay, moment, held = start_relay(), random.Random(SEED), 0
    with Load(crates, seed=SEED):
        for number in range(KILLS):
            start, led = topic.ends(), number + 1
            fill(crates, *doomed(number), times=3)
            wait_until(lambda led=led: relay.said.count('"leading"') == led, alive=relay.require_alive, what="a leader")
            published = partial(held_of, doomed(number), topic, start)
            held += wait_until(published, alive=relay.require_alive, what="a doomed event", pause=0.1)
            fill(crates, *doomed(number), times=200)
            wait_until(topic.in_transaction, alive=relay.require_alive, what="a transaction", pause=0)
            time.sleep(max(0.0, moment.uniform(-0.2, 0.2)))  # the moment of the kill, and no wait for anything
            relay.kill()
            delete(crates, doomed(number))
            relay.restart()
    wait_for_the_last(crates, settings, relay)
    assert relay.stop() == 0
    return held


@pytest.mark.timeout(200 + 40 * KILLS)
def test_views_rebuilt_from_a_cleaned_topic_are_what_the_store_says_and_deleted_streams_stay_deleted(
    crates, settings, start_relay, topic, eager_cleaner, environment, say
):
    held = killed_again_and_again(crates, settings, topic, start_relay)
    topic.clean()
    records = topic.records()
    say(
        f"replay: FACTFOLD_KILLS={KILLS} FACTFOLD_SEED={SEED} pytest tests/faults/test_topic_cleaned.py; "
        f"{len(records):,} records, and none of {held:,} that were there and deleted"
    )
    assert faults(crates, records) == {}
    env, group = environment(), crate_group(topic.name)
    rebuild(env, group)
    assert shown(env) == expected(crates)
    with open_runner(env, group) as runner:
        fill(crates, *range(STREAMS))
        delete(crates, range(3))
        relay_once(crates, settings)
        # The broker ends the relay's last transaction behind the relay.
        wait_until(lambda: [runner.catch_up()] and shown(env) == expected(crates), what="all that was published")
    rows = shown(env)
    assert rows.keys() <= {str(crate) for crate in range(3, STREAMS)}


@pytest.fixture
def cleaned_unread(crates, settings, topic, environment, eager_cleaner, tmp_path):
    """A group and an archive that have a stream, whose deletion came and was compacted away before they read on."""
    fill(crates, *range(4), times=3)
    relay_once(crates, settings)
    env, group = environment(), crate_group(topic.name)
    rebuild(env, group)
    archiver = Archiver(env.log, DeltaArchive.open(env.spark, tmp_path / "archive"))
    archiver.append(topic.name)
    delete(crates, [0])
    relay_once(crates, settings)
    topic.clean()  # takes the events
    fill(crates, 1)
    relay_once(crates, settings)
    topic.clean()  # and this one their tombstones
    assert {record.key.partition(b"@")[0] for record in topic.records()} - {CANARY.partition(b"@")[0]} == {
        f"crate-{number}".encode() for number in (1, 2, 3)
    }
    return env, group, archiver


def test_who_stood_still_while_deletions_were_compacted_away_is_told_so(crates, topic, cleaned_unread):
    env, group, archiver = cleaned_unread
    with pytest.raises(OffsetsLost, match="older than the topic's deletions"), open_runner(env, group):
        pass
    with pytest.raises(OffsetsLost, match="older than the topic's deletions"):
        archiver.append(topic.name)
    rebuild(env, group, cut_over=True)  # the definition is unchanged, and the serving rows are known to be wrong
    assert shown(env) == expected(crates)
