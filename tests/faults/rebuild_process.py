"""`factfold` whose rebuild comes to a point and no further, so that a kill finds it there.

FACTFOLD_STANDS_STILL_AT names a table, which is loaded and not noted, or a step, which is begun.
"""

from __future__ import annotations

import os
import sys
import threading

from factfold.cli import main
from projections import ProjectionGroup, view
from projections.lifecycle import building
from projections.lifecycle.progress import ProgressMeter
from tests.conformance import kiosk

TABLES = {"orders": kiosk.orders, "customers": kiosk.customers}


@view(key="order_id", tables=TABLES)
def buyers(orders, customers):
    """Orders of customers who are there, with their names."""
    named = customers.select(customers.id.alias("customer_id"), "name")
    return orders.join(named, "customer_id").select("order_id", "name")


GROUP = ProjectionGroup("buyers", [buyers])


def stand_still() -> None:
    """Say so, and wait to be killed."""
    sys.stdout.write("standing still\n")
    sys.stdout.flush()
    threading.Event().wait()


def stopped_at(point: str) -> None:
    """Put the point in the way of every rebuild of this process."""
    load_state, step = building.load_state, ProgressMeter.step

    def load(environment, frame, layout, *, rows):
        written = load_state(environment, frame, layout, rows=rows)
        if layout.state.name.endswith(f"state_{point}"):
            stand_still()
        return written

    def begin(meter, name):
        if name == point:
            stand_still()
        return step(meter, name)

    building.load_state, ProgressMeter.step = load, begin


if __name__ == "__main__":
    stopped_at(os.environ["FACTFOLD_STANDS_STILL_AT"])
    main()
