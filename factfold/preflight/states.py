"""The states of all streams by the code of this folder, a line of JSON each, for the process that compares them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from factfold import on_demand
from factfold.cli.events.store import existing_store
from factfold.cli.show import as_json, ended
from factfold.console.definitions import find_definitions


def write_states(targets: Sequence[str], sample: int | None) -> None:
    """Print stream and state of each stream that folds, in the order of their names."""
    kinds = {kind.category: kind for kind in find_definitions(targets).aggregates.values()}
    with existing_store(os.environ["FACTFOLD_STORE_URL"], os.environ.get("FACTFOLD_STORE_SCHEMA")) as store:
        on_demand.refuse_writes(store.engine)
        for _, kind in sorted(kinds.items()):
            states = on_demand.refolded(store, kind, limit=sample).states
            for stream in sorted(states):
                sys.stdout.write(json.dumps([stream, as_json(states[stream].state())]) + "\n")


if __name__ == "__main__":
    _, given, *named = sys.argv
    sys.exit(ended(lambda: write_states(named, int(given) or None)))
