"""search_ctr = searches ⋈ clicks of the next ten minutes in their session, as a click-through rate of each term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections import Stream, join_within, view
from sample_app.browsing import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

searches = Stream.from_events(Session, events=Session.Searched, key="search_id", id="session_id", time="searched_at")
clicks = Stream.from_events(Session, events=Session.Clicked, key="click_id", id="session_id", time="clicked_at")


@view(by="session_id", key=("search_id", "click_id"))
def search_clicks(searches: DataFrame, clicks: DataFrame) -> DataFrame:
    """One row a search and click; a search without one has no click, until one is reported."""
    return join_within(
        searches, clicks, on="session_id", times=("searched_at", "clicked_at"), upper="10 minutes", how="left"
    )


@view(by="term")
def search_ctr(search_clicks: DataFrame) -> DataFrame:
    """One row a term: of its searches, how many led to a click."""
    from pyspark.sql import functions as F

    searches, clicked = F.countDistinct("search_id"), F.countDistinct(F.expr("IF(click_id IS NULL, NULL, search_id)"))
    counted = search_clicks.groupBy("term").agg(
        searches.alias("searches"), clicked.alias("clicked"), F.count("click_id").alias("clicks")
    )
    return counted.withColumn("click_through_rate", (F.col("clicked") / F.col("searches")).cast("decimal(5, 4)"))
