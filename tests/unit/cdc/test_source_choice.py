"""Which database is whose."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, make_url

from cdc import MirrorHeartbeat, PostgresSource
from cdc.source.source_choice import not_of

SHOP = PostgresSource(
    name="shop", host="db", database="shop", user="u", password="${file:/s:p}", topic_prefix="s", tables=("public.a",)
).config()  # fmt: skip
HEARTS = MirrorHeartbeat(
    name="hearts", source_alias="a", target_alias="b", source_bootstrap_servers="a:9", target_bootstrap_servers="b:9"
).config()


@pytest.mark.parametrize("url", ["db:5432/shop", "db/shop", "localhost:15432/shop"])
def test_the_database_of_the_name_is_the_connector_s(url: str) -> None:
    assert not_of(create_engine(make_url(f"postgresql+psycopg://ann:x@{url}")), SHOP) is None


@pytest.mark.parametrize(
    ("url", "config", "reason"),
    [
        ("db:5432/other", SHOP, "it reads database shop, and the one given is other"),
        ("db:5433/shop", SHOP, "it reads the server at port 5432, and the one given is at 5433"),
        ("db:5432", SHOP, "it reads database shop, and the one given is ann"),
        ("db:5432/shop", HEARTS, "it does not read PostgreSQL"),
    ],
)
def test_another_one_is_not_and_it_is_said_why(url: str, config: dict[str, str], reason: str) -> None:
    assert not_of(create_engine(make_url(f"postgresql+psycopg://ann:x@{url}")), config) == reason
