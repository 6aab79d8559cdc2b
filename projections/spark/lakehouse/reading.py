"""A view in Delta Lake as readers see it: at the version that the ledger names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.shown_urls import shown_url
from projections.errors import InvalidDefinition
from projections.spark.lakehouse.places import view_name
from projections.spark.lakehouse.store import DeltaTableStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession


def read_views(spark: SparkSession, url: str, *, group: str) -> Mapping[str, DataFrame]:
    """Return every view of a group's serving generation as of one moment, by name. Each call reads a newer moment.

    Args:
        spark: A session with Delta Lake.
        url: The URL of the table store.
        group: The name of the group.

    Raises:
        NoServingGeneration: The group was not built yet.
        TableStoreUnavailable: The store did not answer.

    Examples:
        >>> views = read_views(environment.spark, "delta:/lake/views", group="shop")
        >>> views["orders_by_region"].count()
        200
    """
    store = DeltaTableStore(spark, url)
    run = store.serving_state(group).run
    entry = store.entry(run)
    tables = {} if entry is None else entry.tables
    prefix = view_name("")
    return {
        name.removeprefix(prefix): store.table(run, name).rows(version, spark)
        for name, version in tables.items()
        if name.startswith(prefix)
    }


def read_view(spark: SparkSession, url: str, *, group: str, view: str) -> DataFrame:
    """Return one view of a group's serving generation, as `read_views` does.

    Raises InvalidDefinition if there is no view of this name.

    Examples:
        >>> read_view(environment.spark, "delta:/lake/views", group="shop", view="orders_by_region").count()
        200
    """
    views = read_views(spark, url, group=group)
    if view not in views:
        raise InvalidDefinition(
            f"group {group!r} serves no view {view!r}",
            remedy=f"its views are: {', '.join(views)}",
            place=shown_url(url),
        )
    return views[view]
