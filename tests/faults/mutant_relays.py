"""`factfold`, but for a relay that finds its place in another way: the planted faults.

FACTFOLD_TEST_MUTANT names one, FACTFOLD_TEST_PLACE is its checkpoint file, and FACTFOLD_TEST_DIE the number of commits
after which it kills itself, in the moment it is made for.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

from eventstore import relay
from eventstore.backends.sql.outbox import BEFORE_ALL, Outbox
from eventstore.identifiers import Position
from eventstore.kafka.producer import Publisher
from factfold.cli import main

PLACE = Path(os.environ["FACTFOLD_TEST_PLACE"])
DIE = int(os.environ.get("FACTFOLD_TEST_DIE", "0"))
send, commit, partition_ends = Publisher.send, Publisher.commit, relay.partition_ends


class Moment:
    """Where the mutant kills itself."""

    commits = 0
    position = BEFORE_ALL

    @classmethod
    def may_be_the_last(cls):
        cls.commits += 1
        if cls.commits == DIE:
            os.kill(os.getpid(), signal.SIGKILL)


def remembered(self, records):
    Moment.position = max(record.position for record in records)
    send(self, records)


def save():
    PLACE.write_text(json.dumps(Moment.position))


def save_then_commit(self):
    save()
    Moment.may_be_the_last()
    commit(self)


def commit_then_save(self):
    commit(self)
    Moment.may_be_the_last()
    save()


def commit_only(self):
    commit(self)
    Moment.may_be_the_last()


def ends_by_file(*arguments):
    place = Position(*json.loads(PLACE.read_text())) if PLACE.exists() else BEFORE_ALL
    return [replace(end, position=place) for end in partition_ends(*arguments)]


def ends_before_last_batch(*arguments):
    """The start of the last transaction of the store."""
    ends = partition_ends(*arguments)
    return [replace(end, position=Position(end.position.order_xid - 1, 2**62)) for end in ends]


MUTANTS = {
    "last batch": (commit_only, ends_before_last_batch),
    "checkpoint after": (commit_then_save, ends_by_file),
    "checkpoint before": (save_then_commit, ends_by_file),
}

if __name__ == "__main__":
    Publisher.send = remembered
    Publisher.commit, relay.partition_ends = MUTANTS[os.environ["FACTFOLD_TEST_MUTANT"]]
    Outbox.page = partialmethod(Outbox.page, events=10)
    main()
