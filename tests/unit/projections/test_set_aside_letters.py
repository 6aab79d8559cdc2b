"""Records that a projection group has set aside are listed and discarded; a rebuild reads them again."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
import sqlalchemy as sa

from eventstore.deadletters import by_cause
from eventstore.errors import NotFound, ReplayRefused
from projections import letters as opened
from projections.errors import NoServingGeneration
from projections.logs.set_aside import FAULTS, SetAside
from projections.stores.aside import note_set_aside, read_set_aside
from projections.stores.sqlite import SqliteTableStore
from tests.commands import factfold
from tests.conformance.ticket_batches import COLUMNS, GROUP, served
from tests.errors import raises


@pytest.fixture
def noted(tmp_path):
    """A store whose serving generation has set records of two topics aside."""
    store = SqliteTableStore(tmp_path / "views.db")
    store.prepare()
    served(store)
    _, layout = store.serving(GROUP, COLUMNS)
    faults = [("ticket", 0, 3, "bad_avro", "7"), ("ticket", 1, 9, "bad_avro", "8"), ("ticket", 0, 5, "no_time", "x"),
              ("other", 0, 1, "bad_json", "")]  # fmt: skip
    columns = [list(column) for column in zip(*faults, strict=True)]
    with store.transaction() as connection:
        note_set_aside(connection, layout, SetAside(pa.table(columns, schema=FAULTS)))
    yield store, layout
    store.close()


def letters_of(store, topic="ticket"):
    return opened(store, topic, group=GROUP.name)


def test_records_set_aside_are_grouped_by_their_fault(noted):
    letters = letters_of(noted[0])
    first, second = by_cause(letters.open())
    assert (first.error, first.count, sorted(first.letters)) == ("bad_avro", 2, ["0@3", "1@9"])
    assert (second.error, second.letters) == ("no_time", ("0@5",))
    shown = letters.show("1@9")
    assert (shown.letter.origin, shown.payload) == ("ticket[1]@9", None)


def test_a_discarded_record_is_not_listed_and_stays_set_aside(noted):
    store, layout = noted
    letters = letters_of(store)
    assert letters.discard(["0@3"], why="known", by="ann").count == 1
    assert [letter.id for letter in letters.open()] == ["0@5", "1@9"]
    assert [(one.letter, one.by, one.why, one.result) for one in letters.actions()] == [
        ("0@3", "ann", "known", "discarded")
    ]
    with store.transaction() as connection:
        before = {"ticket": {0: 10, 1: 10}, "other": {0: 10}}
        assert len(read_set_aside(connection, layout, before=before)) == 4
    with raises(NotFound, code="letter-missing"):
        letters.discard(["0@3"])


def test_a_record_that_is_set_aside_anew_is_listed_again(noted):
    """As a rebuild notes it, of the same topic or of one that was made anew."""
    store, layout = noted
    letters_of(store).discard(["0@3"])
    with store.transaction() as connection:
        later = sa.update(layout.aside).where(layout.aside.c.offset == 3)
        connection.execute(later.values(time=datetime(2030, 1, 1, tzinfo=UTC)))
    assert len(list(letters_of(store).open())) == 3


def test_all_of_one_topic_are_discarded_and_those_of_another_stay(noted):
    store, _ = noted
    assert letters_of(store).discard().count == 3
    assert not list(letters_of(store).open())
    assert len(list(letters_of(store, "other").open())) == 1


def test_a_replay_is_refused_with_the_way_to_read_them_again(noted):
    with pytest.raises(ReplayRefused, match="in its log") as refused:
        letters_of(noted[0]).replay()
    assert "factfold projections rebuild" in refused.value.remedy


def test_a_group_that_was_not_built_is_told(noted):
    with pytest.raises(NoServingGeneration):
        opened(noted[0], "ticket", group="no_such_group")


def test_the_command_lists_and_discards_what_was_set_aside(noted):
    url = f"sqlite:///{noted[0].path}"

    def run(command, *options):
        done = factfold("dlq", command, "ticket", GROUP.name, "--views-url", url, "--json", *options)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert [cause["count"] for cause in run("list")] == [2, 1]
    assert run("discard", "--all", "--yes")["settled"] == 3
    assert run("list") == []
