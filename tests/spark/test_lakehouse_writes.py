"""A Delta table of a generation is merged into, or written anew where it is small; its files are found either way."""

from __future__ import annotations

import pytest

from projections.errors import RunSuperseded
from projections.spark.delta_log import DeltaLog
from projections.spark.lakehouse import versioned
from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.lakehouse.versioned import VersionedTable

ROWS = [(1, None, "a"), (1, 2, "b"), (3, 3, "c")]


@pytest.fixture(params=["MERGE", "WRITE"])
def operation(request, monkeypatch):
    """What Delta calls the writing, of any table."""
    most = {"MERGE": 0, "WRITE": 1 << 40}[request.param]
    monkeypatch.setattr(versioned, "mostly_rewritten", lambda _: most)
    return request.param


@pytest.fixture
def table(spark, tmp_path):
    """A table of three rows whose key has two columns, in its version 0."""
    session = DeltaTableStore(spark, f"delta:{tmp_path}").spark
    made = VersionedTable(session, f"file:{tmp_path}/table", "table")
    made.replace(session.createDataFrame(ROWS, "one long, other long, value string"))
    return made


def changes(table, *rows):
    return table.spark.createDataFrame(list(rows), "other long, value string, one long, _retracted boolean")


def rows_of(table, version):
    return {tuple(row) for row in table.rows(version).collect()}


def last_operation(table):
    return table.spark.sql(f"DESCRIBE HISTORY delta.`{table.path}` LIMIT 1").first()["operation"]


CHANGED = [(None, "A", 1, False), (2, "b", 1, True), (9, "gone before it came", 9, True), (5, "e", 5, False)]
KEY = ("one", "other")


def test_changed_rows_take_the_place_of_those_of_their_keys_and_of_what_a_killed_batch_left(table, operation):
    torn = table.merge(changes(table, *CHANGED, (7, "torn", 7, False)), KEY, at=0)
    assert rows_of(table, torn) == {(1, None, "a"), (1, None, "A"), (3, 3, "c"), (5, 5, "e"), (7, 7, "torn")}
    version = table.merge(changes(table, *CHANGED), KEY, at=0, nullable=True)
    assert rows_of(table, version) == {(1, None, "A"), (3, 3, "c"), (5, 5, "e")}
    assert (rows_of(table, 0), last_operation(table)) == (set(ROWS), operation)
    emptied = table.merge(changes(table, *((o, v, one, True) for one, o, v in ROWS)), KEY, at=0, nullable=True)
    assert rows_of(table, emptied) == set()
    assert rows_of(table, table.merge(changes(table, (5, "e", 5, False)), KEY, at=emptied)) == {(5, 5, "e")}


@pytest.mark.usefixtures("operation")
def test_of_two_writers_at_once_none_takes_the_version_of_both_for_his_own(table, monkeypatch):
    other = VersionedTable(table.spark, table.path, "table")
    seen = VersionedTable.version

    def meanwhile(self):
        found = seen(self)
        if self is table and found == 0:
            other.merge(changes(other, (7, "other", 7, False)), KEY, at=0)
        return found

    monkeypatch.setattr(VersionedTable, "version", meanwhile)
    with pytest.raises(RunSuperseded):
        table.merge(changes(table, (5, "e", 5, False)), KEY, at=0)


def identities(files):
    return {(file.path(), str(file.getDeletionVectorUniqueId())) for file in files}


@pytest.mark.usefixtures("operation")
def test_the_files_that_a_writer_has_noted_are_those_of_the_log(table):
    torn = table.merge(changes(table, (3, "c", 3, True), (5, "e", 5, False)), KEY, at=0)
    version, log = table.merge(changes(table, (2, "B", 1, False)), KEY, at=0), DeltaLog(table.spark, table.path)
    assert torn < version
    for at in range(version + 1):
        assert log.size(at) == sum(file.size() for file in log.files(at))
        assert identities(log.files(at)) == identities(log._at(at).allFiles().collectAsList())


def test_a_table_without_such_notes_is_read_and_merged_into(table, tmp_path):
    table.merge(changes(table, (5, "e", 5, False)), KEY, at=0)
    first, second = sorted((tmp_path / "table" / "_delta_log").glob("0*.crc"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:99])
    table.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    for version, rows in ((0, {*ROWS}), (1, {*ROWS, (5, 5, "e")})):
        assert DeltaLog(table.spark, table.path).size(version) is None
        assert {tuple(row) for row in table.listed(version, table.spark).collect()} == rows
    assert rows_of(table, table.merge(changes(table, (5, "e", 5, True)), KEY, at=1)) == {*ROWS}
    assert last_operation(table) == "MERGE"


def test_a_table_is_written_anew_for_so_many_changed_rows_as_are_worth_it(table):
    table.replace(table.spark.range(100_000).selectExpr("id AS one", "id AS other", "uuid() AS value"))
    assert DeltaLog(table.spark, table.path).size(1) > versioned.mostly_rewritten(1)
    version = table.merge(changes(table, (5, "e", 5, False)), KEY, at=1, count=1)
    assert last_operation(table) == "MERGE"
    table.merge(changes(table, (5, "f", 5, False)), KEY, at=version, count=6_000)
    assert last_operation(table) == "WRITE"
