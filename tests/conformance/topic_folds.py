"""What a reader of a view topic makes of it: the last record of each key, a tombstone deletes. Published by hand."""

from __future__ import annotations

import contextlib
import json

import sqlalchemy as sa

from projections.outputs.publishing import ViewPublisher
from projections.stores import outbox


def publisher(store, log, group):
    """What a runner publishes by, into a log in memory."""
    return ViewPublisher(store, log.view_topics(), group)


def folded(log, topic):
    """The rows of a topic by their keys."""
    found = {}
    for key, value in log.records(topic):
        found.pop(key, None)
        if value is not None:
            found[key] = json.loads(value)
    return found


def rows_of(store, view):
    """The rows of a stored view as the topic should have them, by column in SQL's own words."""
    with store.looking() as connection:
        rows = connection.execute(sa.select(*(view.view.c[c] for c in view.columns))).mappings().all()
    return {key(view, row): dict(row) for row in rows}


def key(view, row):
    """The record's key of a row of whole numbers and texts."""
    return json.dumps({c: row[c] for c in view.definition.key}, separators=(",", ":")).encode()


def waiting(store):
    with store.looking() as connection:
        return outbox.waiting(connection)


class Died(BaseException):
    """The end of a process, as far as one process can show it."""


@contextlib.contextmanager
def dies_instead_of(target, name, monkeypatch):
    """A function that ends the process when it is called."""

    def die(*arguments, **options):
        raise Died(name)

    with monkeypatch.context() as patched:
        patched.setattr(target, name, die)
        yield
