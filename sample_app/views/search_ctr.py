"""search_ctr = searches ⋈ clicks of the next ten minutes in their session, as a click-through rate of each term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections import Stream, join_within, sql_view, view
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


search_ctr = sql_view(
    "search_ctr",
    """
    SELECT term, searches, clicked, clicks, cast(clicked / searches AS decimal(5, 4)) AS click_through_rate
    FROM (
        SELECT term, count(DISTINCT search_id) AS searches, count(click_id) AS clicks,
            count(DISTINCT IF(click_id IS NULL, NULL, search_id)) AS clicked
        FROM search_clicks GROUP BY term)
    """,
    tables={"search_clicks": search_clicks},
    by="term",
)
