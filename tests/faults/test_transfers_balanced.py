"""T2 (a): debits and credits of one topic are added up apart and joined: every published version sums to 0.

FACTFOLD_KILLS chooses the size, though nothing is killed: 100,000 transfers in 1,000 versions in make faults, a million
in as many in make faults-full; FACTFOLD_SEED chooses them, both are printed. They come up to 10 s out of the order of
their times. A reader looks all the while, and once after each commit. T2 (b) is
tests/integration/test_cdc_transactions.py.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest

from projections import open_runner, rebuild, verify
from tests.faults.balanced_transfers import ACCOUNTS, Samples, Transfer, balance_group, in_disorder, to_everyone
from tests.integration.log_writer import LogWriter

KILLS = int(os.environ.get("FACTFOLD_KILLS", "5"))
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
VERSIONS, EACH = 1_000, 20 * KILLS  # transfers
SENT_AT_ONCE = 10_000


@pytest.fixture
def writer(settings):
    return LogWriter(settings, Transfer)


@pytest.fixture
def bank(environment, writer):
    """Views of a transfer each, and their group."""
    views, group = environment(), balance_group(writer.events_topic)
    send(writer, to_everyone())
    rebuild(views, group)
    return views, group


def send(writer, transfers):
    """Send them, as many as come; return the cents of all."""
    cents, coming = 0, iter(transfers)
    while part := list(islice(coming, SENT_AT_ONCE)):
        writer.send([writer.event(identity, made) for identity, made in part])
        cents += sum(made.cents for _, made in part)
    return cents


def sampled(environment, group):
    """What was seen of all versions to the end of the topic: by a reader at any time, and after each commit."""
    beside, each = Samples(environment.store), Samples(environment.store)
    each.look()
    with open_runner(environment, group) as runner, beside.going_on():
        while runner.run_once(max_records=EACH):
            each.look()
    return beside, each


@pytest.mark.faults
@pytest.mark.timeout(max(300, 2 * VERSIONS))
def test_every_published_version_sums_to_0(bank, writer, say):
    say(f"replay: FACTFOLD_KILLS={KILLS} FACTFOLD_SEED={SEED} pytest tests/faults")
    views, group = bank
    cents = send(writer, in_disorder(VERSIONS * EACH, seed=SEED))
    beside, each = sampled(views, group)
    assert (beside.unbalanced, each.unbalanced) == (set(), set())
    assert len(each.versions) == each.looks > VERSIONS  # each of its own: not one was looked at twice
    assert beside.looks > VERSIONS
    assert beside.versions <= each.versions
    assert max(each.versions) == ACCOUNTS + cents
    assert all(verdict.equal for verdict in verify(views, group).values())
