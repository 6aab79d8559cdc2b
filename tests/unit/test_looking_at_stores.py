"""Commands that look into a store make none: a mistyped SQLite file is an error, and not an empty file."""

from __future__ import annotations

import pytest

from eventstore.errors import StoreNotPrepared
from tests.commands import factfold

LOOKS = [
    ("events", "tail"),
    ("events", "show", "order-o1@0"),
    ("streams", "show", "order-o1"),
    ("trace", "11111111-1111-1111-1111-111111111111"),
    ("processes", "list"),
    ("processes", "stats"),
    ("schedule", "list"),
    ("store", "archive", "order-o1"),
    ("erase", "ann", "--yes"),
]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_file_that_is_not_there_is_not_made(words, tmp_path):
    path = tmp_path / "nope.db"
    done = factfold(*words, "--store-url", f"sqlite:///{path}")
    assert isinstance(done.exception, StoreNotPrepared), done.output
    assert "there is no such file" in done.exception.message
    assert not path.exists()
