"""The lists of settings that are shipped, held against their own headings and against what declarations write."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest

from cdc.connectors.base import kind_of, known_keys, text_of
from cdc.connectors.encodings import ApicurioAvro
from cdc.connectors.postgres_connector import PostgresConnector
from tests.unit.cdc.declared import CHANGELOGS, DEBEZIUM, MIRRORS

HEADING = re.compile(r"## (?P<java>\S+) v(?P<version>\S+) keys=(?P<keys>\d+)")
TYPES = {"STRING", "INT", "SHORT", "LONG", "DOUBLE", "BOOLEAN", "LIST", "CLASS", "PASSWORD"}
# Keys as Debezium 3.6.1 and 3.7.0 and Kafka 4.3.1 publish them; MariaDB's are MySQL's without three.
PUBLISHED = {
    "mariadb": 121,
    "mirror_checkpoint": 89,
    "mirror_heartbeat": 78,
    "mirror_source": 94,
    "mysql": 124,
    "postgres": 141,
}
LISTS = sorted(file.name for file in files("cdc.connectors").iterdir() if file.name.endswith("_keys.tsv"))


def published(catalogue: str) -> list[list[str]]:
    """The rows that the jar lists, without those that were added after them."""
    lines = text_of(catalogue).splitlines()
    added = next(n for n, line in enumerate(lines) if line.endswith("absent from the list it publishes"))
    return [line.split("\t") for line in lines[2:added]]


def test_every_list_is_looked_at_here() -> None:
    assert [name.removesuffix("_keys.tsv") for name in LISTS if not name.startswith("connect_")] == sorted(PUBLISHED)


@pytest.mark.parametrize("database", PUBLISHED)
def test_a_list_has_as_many_keys_as_its_heading_says(database: str) -> None:
    rows = published(f"{database}_keys.tsv")
    heading = HEADING.fullmatch(text_of(f"{database}_keys.tsv").splitlines()[1])

    assert heading is not None
    assert len(rows) == len({row[0] for row in rows}) == int(heading["keys"]) == PUBLISHED[database]
    assert {len(row) for row in rows} == {4}
    assert {row[1] for row in rows} <= TYPES


@pytest.mark.parametrize("declare", [*DEBEZIUM, *MIRRORS])
def test_a_connector_is_of_the_class_its_list_was_read_off(declare: Any) -> None:
    heading = HEADING.fullmatch(text_of(declare().CATALOGUE).splitlines()[1])

    assert heading is not None
    assert declare().config()["connector.class"] == heading["java"]


@pytest.mark.parametrize("declare", [*DEBEZIUM, *MIRRORS])
def test_every_key_a_declaration_writes_is_one_somebody_reads(declare: Any) -> None:
    known = known_keys(declare().CATALOGUE)

    assert [key for key in declare().config() if kind_of(key, known) is None] == []


@pytest.mark.parametrize("declare", CHANGELOGS)
def test_every_key_of_every_field_is_one_somebody_reads(declare: Any) -> None:
    declared = declare(
        epoch=1,
        transactions=True,
        signal_table="shop.signals",
        notifications_topic="notes",
        history=declare().captured,
        encoding=ApicurioAvro(registry_url="http://registry"),
    )
    known = known_keys(declared.CATALOGUE)

    assert [key for key in declared.config() if kind_of(key, known) is None] == []
    assert [key for key in declared._owned().keys if kind_of(key, known) is None] == []


def test_keys_of_the_list_that_stand_for_many_match_names_and_no_more() -> None:
    known = known_keys(PostgresConnector.CATALOGUE)

    assert kind_of("column.mask.with.12.chars", known) == "STRING"
    assert kind_of("column.mask.with.twelve.chars", known) is None
    assert kind_of("transforms.", known) is None
