"""Tables with a condition share the state of the whole table, and Spark judges a folded row as a whole."""

from __future__ import annotations

from decimal import Decimal

from projections import ProjectionGroup, Table, field, view
from projections.testing.memory_log import MemoryLog
from projections.testing.trial import ViewTrial
from tests.conformance.filtered_views import GROUP, NAMED, SQL, WORLD
from tests.conformance.relational_batches import RelationalBatches
from tests.integration.tickets import DECLARED, Ticket
from tests.reference import accepted


def test_a_filtered_table_shares_the_state_of_the_whole_one(store, spark):
    layout = RelationalBatches(store, MemoryLog(), GROUP, SQL, WORLD.columns(spark))._layout
    assert sorted(layout.tables) == ["customers", "orders", "regions"]
    assert layout.views["all_of_them"].root.state is layout.views["summed"].root.state


tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
open_tickets = tickets.where((field("status") == "open") & (field("hours") >= Decimal("1.5")))


@view(key="ticket_id")
def waiting(open_tickets):
    return open_tickets.select("ticket_id", "customer_id")


def folded(spark, folder):
    with ViewTrial(spark, ProjectionGroup("folded", [waiting]), folder) as trial:
        trial.record("ticket-1", Ticket.Opened(customer_id=7, hours=Decimal("1.5")))
        trial.record("ticket-2", Ticket.Opened(customer_id=8, hours=Decimal("1.4999")))
        trial.check()
        assert trial.rows("waiting") == [{"ticket_id": "1", "customer_id": 7}]
        trial.record("ticket-1", Ticket.Moved(customer_id=9))  # sets neither of the condition's columns
        trial.check()
        assert trial.rows("waiting") == [{"ticket_id": "1", "customer_id": 9}]
        trial.record("ticket-1", Ticket.Closed())
        trial.check()
        assert trial.rows("waiting") == []


def test_a_folded_row_is_judged_as_a_whole(spark, tmp_path):
    folded(spark, tmp_path)


def test_the_reference_judges_rows_as_three_valued_logic_does():
    rows = [{"region_id": region, "full_name": name} for region, name in ((1, "b"), (1, None), (None, None))]
    assert list(accepted(NAMED["customers"], rows)) == [rows[0], rows[2]]
