"""Something that does not come is told by the clock: a match of its absence is final without another row."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from projections import (
    Environment,
    FinalResults,
    ProjectionGroup,
    Table,
    field,
    label,
    match_pattern,
    open_runner,
    rebuild,
    view,
)
from projections.spark.session import small_batch_session
from projections.stores import dialects, finals
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance.followed_views import in_a_file

STEPS = sa.Table(
    "steps", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("visitor", sa.Text),
    sa.Column("at", sa.DateTime(timezone=True)), sa.Column("kind", sa.Text),
)  # fmt: skip
steps = Table.from_changelog(STEPS, topic="shop.public.steps")
NOON, EPOCH = datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)
filled = label("filled", field("kind") == "filled")
pattern = filled.within("10 minutes").not_followed_by(field("kind") == "bought")


@view(by="visitor", key="id", final=FinalResults("filled_at", after="12 minutes"))
def abandoned(steps):
    return match_pattern(steps, pattern, by="visitor", time="at", measures={"filled_at": filled.last("at")})


GROUP = ProjectionGroup("baskets", [abandoned])


@pytest.fixture
def at(monkeypatch):
    """A function that lets the clock of the views' database show so many minutes after noon."""

    def at(minute):
        moment = NOON + timedelta(minutes=minute)
        monkeypatch.setattr(dialects, "now", lambda connection: (moment - EPOCH) // timedelta(microseconds=1))

    at(0)
    return at


def test_a_basket_that_is_not_bought_is_told_by_the_clock_though_no_row_follows(spark, tmp_path, at):
    with in_a_file(tmp_path) as store:
        environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        rebuild(environment, GROUP)
        changes = ChangeWriter(environment.log)

        def step(id, visitor, minute, kind):
            moment = (NOON + timedelta(minutes=minute)).isoformat()
            changes.put(steps, {"id": id, "visitor": visitor, "at": moment, "kind": kind})

        def given():
            with store.looking() as connection:
                rows = list(finals.results_of(connection, "baskets", "abandoned", late=False))
            return [json.loads(row["key"])["visitor"] for row in rows]

        with open_runner(environment, GROUP) as runner:

            def pass_to(minute):
                at(minute)
                runner.catch_up()
                runner.run_once()

            step(1, "ann", 0, "filled")
            step(2, "bob", 0, "filled")
            pass_to(5)
            step(3, "bob", 10, "bought")  # at the last moment
            pass_to(11)
            assert given() == []
            pass_to(12)
            assert given() == ["ann"]
