"""The files of a ledger: one process puts a number, on this machine and through Delta's LogStore."""

from __future__ import annotations

import dataclasses
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from projections.errors import TableStoreUnavailable
from projections.spark.lakehouse import ledger as ledgers
from projections.spark.lakehouse.ledger import Entry, Ledger
from projections.spark.lakehouse.numbered_files import HadoopFiles, LocalFiles, numbered_files
from projections.stores.runs import SERVING, Run, RunState

WRITERS, COMMITS = 4, 25


@pytest.fixture(params=["local", "Hadoop"])
def files(request, spark, tmp_path):
    folder = tmp_path / "ledger" / "runs"
    if request.param == "local":
        return LocalFiles(folder)
    return HadoopFiles(spark, f"file:{folder}")


def entry(generation, progress=0):
    run = Run("pond", generation, "f", "token", 1)
    state = RunState(run, SERVING, {"orders": {0: progress}}, False, False, "holder", {"tables": ["orders"]}, None)
    return Entry(state, {"state_orders": 7}).changed()


def test_a_number_is_put_once_and_the_newest_one_is_found(files):
    assert files.newest() == -1
    assert files.put(0, ["first"])
    assert files.put(1, ["second", "of two lines: ä"])
    assert not files.put(1, ["third"])
    assert (files.newest(), files.newest(known=1)) == (1, 1)
    assert list(files.read(1)) == ["second", "of two lines: ä"]
    files.remove(0)
    files.remove(0)
    assert files.newest() == 1
    assert files.put(2, [])
    assert list(files.read(2)) == []


def test_what_a_killed_process_left_half_written_is_no_file_of_the_ledger(tmp_path):
    files = LocalFiles(tmp_path)
    files.put(3, ["whole"])
    (tmp_path / ".0a1b").write_text("ha")
    (tmp_path / "runs.txt").write_text("of somebody else")
    assert files.newest() == 3
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".json") == [f"{3:020}.json"]


def test_a_ledger_says_what_was_put_to_another_one_of_the_same_files(files):
    written = {1: entry(1), 2: entry(2, progress=5)}
    Ledger(files, "pond").change(lambda _: written)
    assert Ledger(files, "pond").entries() == written


def counted(folder):
    """Add one to the progress, so often, by a ledger that is opened anew."""
    ledger = Ledger(folder, "pond")
    for _ in range(COMMITS):
        ledger.change(lambda found: {1: entry(1, found[1].state.progress["orders"][0] + 1)})


def test_of_commits_at_once_none_is_lost_and_old_files_go(tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers, "FILES_RETAINED", 10)
    files = LocalFiles(tmp_path)
    Ledger(files, "pond").change(lambda _: {1: entry(1)})
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(counted, [LocalFiles(tmp_path)] * WRITERS))
    assert Ledger(files, "pond").entries()[1].state.progress == {"orders": {0: WRITERS * COMMITS}}
    assert len(list(tmp_path.iterdir())) == 10


def test_the_planted_fault_is_seen_a_file_that_takes_the_place_of_another(tmp_path, monkeypatch):
    monkeypatch.setattr("os.link", os.replace)
    with pytest.raises(AssertionError):
        test_of_commits_at_once_none_is_lost_and_old_files_go(tmp_path, monkeypatch)


def test_who_has_slept_since_it_looked_looks_again(tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers, "_LOOK_HOLDS", 0.2)
    other, asked = Ledger(LocalFiles(tmp_path), "pond"), []

    def change(found):
        asked.append(dict(found))
        if len(asked) == 1:
            other.change(lambda _: {1: entry(1)})
            LocalFiles(tmp_path).remove(0)  # as a thousand commits would
            time.sleep(0.3)  # the sleep that is tested, and no wait for anything
        return {2: entry(2)}

    Ledger(LocalFiles(tmp_path), "pond").change(change)
    assert len(asked) == 2


def test_who_always_comes_second_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers, "_ATTEMPTS", 3)
    monkeypatch.setattr(LocalFiles, "put", lambda self, number, lines: False)
    with pytest.raises(TableStoreUnavailable, match="other processes committed to the ledger first, 3 times"):
        Ledger(LocalFiles(tmp_path), "pond").change(lambda _: {1: entry(1)})


def test_a_folder_that_cannot_be_written_is_told_with_its_path(tmp_path):
    (tmp_path / "runs").write_text("a file where the folder should be")
    ledger = Ledger(LocalFiles(tmp_path / "runs"), "pond")
    with pytest.raises(TableStoreUnavailable, match="the ledger cannot be read or written: Not a directory") as told:
        ledger.change(lambda _: {1: entry(1)})
    assert told.value.place == str(tmp_path / "runs")


def test_a_folder_of_this_machine_needs_no_spark(spark):
    assert numbered_files(spark, "file:/lake/pond/runs") == LocalFiles(Path("/lake/pond/runs"))
    assert isinstance(numbered_files(spark, "s3a://lake/pond/runs"), HadoopFiles)


def test_an_entry_that_was_never_changed_has_no_time(files):
    never = dataclasses.replace(entry(1), state=dataclasses.replace(entry(1).state, updated_at=None))
    Ledger(files, "pond").change(lambda _: {1: never})
    assert Ledger(files, "pond").entries()[1].state.updated_at is None
