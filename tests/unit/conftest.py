"""Fewer examples than in make faults, and a store of each test's own that has its tables already."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from eventstore import SqlEventStore
from tests.ledger import METADATA

if "FACTFOLD_EXAMPLES" not in os.environ:
    hypothesis.settings.register_profile("few", max_examples=30)
    hypothesis.settings.load_profile("few")


@pytest.fixture(scope="session")
def prepared_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the tables of the event store and of the ledger."""
    path = tmp_path_factory.mktemp("prepared") / "shop.db"
    with SqlEventStore(f"sqlite:///{path}") as store:
        store.create_tables()
        METADATA.create_all(store.engine)
    return path


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a file that is not there yet."""
    return f"sqlite:///{tmp_path / 'events.db'}"


@pytest.fixture
def store_url(prepared_file: Path, tmp_path: Path) -> str:
    """The URL of a copy of the prepared file."""
    return f"sqlite:///{shutil.copy(prepared_file, tmp_path / 'shop.db')}"


@pytest.fixture
def store(store_url: str) -> Iterator[SqlEventStore]:
    """A store on a copy of the prepared file."""
    with SqlEventStore(store_url) as opened:
        yield opened
