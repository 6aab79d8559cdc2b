"""T5: a log comes with repetitions and late partitions, and then all of it again; its views are the clean log's.

FACTFOLD_KILLS chooses the size, though nothing is killed: 20,000 steps of a history in make faults, 200,000 in make
faults-full; FACTFOLD_SEED chooses them, both are printed. A step is a record or more: half of the deletions are
followed by a row of a snapshot that was read before them. A twentieth of the records comes twice, at a twentieth their
partition falls behind the others. The views are held against plain Python; then their digests, of all columns by key,
must stay what they are, and be those of a rebuild and of the undisturbed log. They are taken when all has come again: a
batch may end between an old deletion that is repeated and its tombstone, and then the row is gone until its later
records are repeated too.
"""

from __future__ import annotations

import os

import pytest

from projections import open_runner, rebuild
from projections.spark.views.view_functions import view_columns
from projections.stores.comparison import digest_rows
from tests.faults.disturbed_log import disturbed, moved
from tests.integration.log_writer import LogWriter
from tests.integration.ticket_history import TicketHistory, assert_views_as_expected
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group

KILLS = int(os.environ.get("FACTFOLD_KILLS", "5"))
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
STEPS, PARTS = 4_000 * KILLS, 40  # sent in so many parts, each a batch or more


@pytest.fixture
def clean(request, settings):
    """A history, its records as they happened, and the writer to whose topics they are to go."""
    writer = LogWriter(settings, Ticket, CUSTOMERS, REGIONS)
    steps = getattr(request, "param", STEPS)
    history = TicketHistory(writer, SEED, size=max(8, steps // 20), repeated=0)
    records = [record for _ in range(steps) for record in history.step()]
    return history, records, writer


@pytest.fixture
def road(environment, settings, clean):
    """An environment with a group that reads the disturbed log, which is sent by nobody yet."""
    _, records, source = clean
    writer = LogWriter(settings, Ticket, CUSTOMERS, REGIONS)
    views, group = environment(), ticket_group(writer)
    rebuild(views, group)
    return views, group, writer, moved(disturbed(records, seed=SEED), source, writer)


def digests(environment, group):
    """The digest and number of rows of each view."""
    _, layout = environment.store.serving(group, view_columns(environment.spark, group))
    places = layout.views.values()
    return {
        place.name: digest_rows(environment.store.target(place.view).fetch(place.columns, order_by=place.key.columns))
        for place in places
    }


def carried_over(environment, group, writer, records, *, parts=PARTS):
    """Send a log in parts, each while the views are kept."""
    size = -(-len(records) // parts)
    with open_runner(environment, group) as runner:
        for start in range(0, len(records), size):
            writer.send(records[start : start + size])
            while runner.run_once():
                pass


@pytest.mark.faults
@pytest.mark.timeout(max(300, 60 * KILLS))
def test_views_are_those_of_the_clean_log_after_a_disturbed_one_and_after_the_same_again(road, clean, environment, say):
    say(f"replay: FACTFOLD_KILLS={KILLS} FACTFOLD_SEED={SEED} pytest tests/faults")
    (views, group, writer, log), (history, records, source) = road, clean
    assert len(log) > 1.03 * len(records)
    carried_over(views, group, writer, log)
    assert_views_as_expected(views, history)
    right = digests(views, group)
    carried_over(views, group, writer, log)
    assert digests(views, group) == right
    rebuild(views, group)
    assert digests(views, group) == right
    undisturbed, its_group = environment(), ticket_group(source)
    source.send(records)
    rebuild(undisturbed, its_group)
    assert digests(undisturbed, its_group) == right
