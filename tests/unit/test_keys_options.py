"""The keys that the options of a command name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventstore import SqlEventStore, SqlKeyStore
from eventstore.errors import DeclarationError
from factfold.cli.keys import StoredKeys
from factfold.cli.views import projections as command_line
from tests.conformance.ticket_batches import GROUP

MASTER = "one:" + "A" * 43 + "="


@pytest.mark.parametrize(("master_keys", "url"), [(None, None), (MASTER, None), (None, "sqlite://")])
def test_without_master_keys_or_a_store_there_are_none(master_keys: str | None, url: str | None) -> None:
    with StoredKeys(master_keys, url).opened() as keys:
        assert keys is None


def test_keys_that_are_none_are_refused() -> None:
    with pytest.raises(DeclarationError, match="are not name:base64"), StoredKeys("one:short", "sqlite://").opened():
        pass


@pytest.mark.parametrize("keys_url", [None, "own"])
def test_the_file_of_the_embedded_road_holds_its_own_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_url: str | None
) -> None:
    views, own = f"sqlite:///{tmp_path}/views.db", f"sqlite:///{tmp_path}/keys.db"
    for url in (views, own):
        with SqlEventStore(url) as store:
            store.create_tables()
    seen: list[Any] = []

    class Opened:
        @staticmethod
        def embedded(path: Path, **options: Any) -> Opened:
            seen.append(options["keys"])
            return Opened()

        def __enter__(self) -> Opened:
            return self

        def __exit__(self, *exception: object) -> None:
            assert seen[0].erasures() == 0, "the keys are open for as long as the environment is"

    monkeypatch.setattr("projections.Environment", Opened, raising=False)
    monkeypatch.setattr("factfold.cli.views.projections.spark_jars", list)
    given = own if keys_url else None
    with command_line.opened_environment(GROUP, command_line.Place(views, "1g", StoredKeys(MASTER, given))):
        (keys,) = seen
    assert isinstance(keys, SqlKeyStore)
    assert keys.engine.url.database == (own if keys_url else views).removeprefix("sqlite:///")
