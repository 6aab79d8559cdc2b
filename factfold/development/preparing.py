"""A new event store in a SQLite file, prepared for a service before `factfold up` and `factfold dev` run its parts."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Annotated

import eventstore
from factfold import on_demand
from factfold.cli.definitions import load_definition
from factfold.cli.options import setting
from factfold.development.parts import STORE_URL, VIEWS_URL, is_embedded
from factfold.discovery import discovered

Prepare = Annotated[
    str | None,
    setting("--prepare", "A function that prepares a new store in SQLite, as module:name. It gets the store."),
]


def prepare_new_store(package: str, settings: Mapping[str, str], function: str | None = None) -> str | None:
    """Create the tables of an event store in SQLite that has none, and register the service's aggregates.

    Args:
        package: The service, which is imported only if there is something to do.
        settings: The variables of the environment.
        function: The service's own function, as module:name, which gets the store: for its tables and what it captures.

    Returns:
        The file, or None if nothing was to do.
    """
    if not is_embedded(settings):
        return None
    url, source = (
        settings.get(STORE_URL) or settings[VIEWS_URL],
        settings.get("FACTFOLD_STORE_SOURCE", on_demand.DEFAULT_SOURCE),
    )
    with eventstore.SqlEventStore(
        url, source=source, topic_prefix=settings.get("FACTFOLD_STORE_TOPIC_PREFIX")
    ) as store:
        if store.version().installed is not None:
            return None
        own = function and load_definition(function, FunctionType, what="function", example="shop.demo:prepare")
        store.create_tables()
        store.register(*(one.value for one in discovered(package).of("aggregate")))
        if own:
            own(store)
        return store.engine.url.database
