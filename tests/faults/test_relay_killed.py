"""T9: the relay is killed with -9 in the middle of its transactions, then its topic is cleaned by force.

Every event is in the topic once, each stream in its order; afterwards compaction has nothing to take but what the dead
left behind. FACTFOLD_KILLS sets how often it is killed: once in make test, 10 times in make faults (5, twice each).
"""

from __future__ import annotations

import os
import random
import threading
import time

import pytest

from eventstore.relay import Relay
from tests.crates import faults, fill
from tests.faults.relayed_topic import STREAMS, Load, wait_for_the_last, waiting
from tests.waiting import wait_until

GIVEN = int(os.environ.get("FACTFOLD_KILLS", "1"))
KILLS = 1 if GIVEN == 1 else 2 * GIVEN
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
# Four full pages: the relay is in a transaction most of the time.
BACKLOG = 20_000


@pytest.mark.timeout(200 + 40 * KILLS)
def test_every_event_is_in_the_topic_once_and_in_order_though_the_relay_is_killed_and_the_topic_cleaned(
    crates, settings, start_relay, topic, eager_cleaner, say
):
    relay, moment, dead = start_relay(), random.Random(SEED), list[int]()
    with Load(crates, seed=SEED):
        while sum(count > 0 for count in dead) < KILLS:
            if waiting(crates, settings) < BACKLOG:
                fill(crates, *range(STREAMS, 2 * STREAMS), times=BACKLOG // STREAMS)
            # The transaction of the one before it is ended by then: what is open afterwards is its own.
            led = len(dead) + 1
            wait_until(lambda led=led: relay.said.count('"leading"') == led, alive=relay.require_alive, what="a leader")
            wait_until(topic.in_transaction, alive=relay.require_alive, what="a transaction", pause=0)
            # The moment of the kill, and no wait for anything: half of them at once, while the batch is on its way.
            time.sleep(max(0.0, moment.uniform(-0.2, 0.2)))
            relay.kill()
            dead.append(topic.left_behind())
            relay.restart()
    wait_for_the_last(crates, settings, relay)
    assert relay.stop() == 0
    records = topic.records()
    say(
        f"replay: FACTFOLD_KILLS={GIVEN} FACTFOLD_SEED={SEED} pytest tests/faults/test_relay_killed.py; "
        f"{len(records):,} events; killed with {dead} records in an open transaction"
    )
    assert faults(crates, records) == {}
    topic.clean()
    assert topic.uncommitted_too() == len(records)
    assert faults(crates, topic.records()) == {}
    fill(crates, *range(STREAMS))
    assert Relay(crates, settings).run(stop=threading.Event(), once=True).events == STREAMS
    # The broker answers a commit before its marks are in every partition.
    wait_until(lambda: not faults(crates, topic.records()), what="the last transaction", pause=0.2)


@pytest.mark.faults
def test_the_second_relay_takes_over_from_one_that_is_killed(crates, settings, start_relay, topic):
    with Load(crates, seed=SEED):
        first = start_relay(name="first")
        wait_until(lambda: '"leading"' in first.said, alive=first.require_alive)
        second = start_relay(name="second")
        wait_until(lambda: '"standing by"' in second.said, alive=second.require_alive)
        assert '"leading"' not in second.said
        wait_until(topic.in_transaction, alive=first.require_alive, what="a transaction", pause=0)
        first.kill()
        wait_until(lambda: '"leading"' in second.said, alive=second.require_alive)
    wait_until(lambda: waiting(crates, settings) == 0, alive=second.require_alive, what="the last event", pause=0.2)
    assert second.stop() == 0
    assert faults(crates, topic.records()) == {}
