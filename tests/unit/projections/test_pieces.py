"""Digests, ranges and progress, whole transactions, and URLs of table stores."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg.conninfo
import pyarrow as pa
import pytest
import sqlalchemy as sa

from eventstore.backends.sql.engines import engine_for
from factfold.cli.cdc.connectors import _created as database_of_a_source
from projections import ProjectionGroup, Table, view
from projections.errors import InvalidDefinition, OffsetsLost, ProjectionError, TableStoreUnavailable
from projections.logs.offsets import OffsetRange, bounded, reached
from projections.spark.failures import MARK, translate
from projections.spark.reading.records import from_the_beginning, require_served
from projections.stores.comparison import digest_rows
from projections.stores.opening import open_table_store, sqlite_path
from projections.stores.postgres import PostgresTableStore
from projections.stores.runs import decode_progress
from tests.errors import raises


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def test_a_digest_does_not_depend_on_how_rows_are_batched():
    whole = [batch(k=["a", "b"], v=[1, None])]
    parts = [batch(k=["a"], v=[1]), batch(k=["b"], v=pa.array([None], pa.int64()))]
    assert digest_rows(whole) == digest_rows(parts)
    assert digest_rows(whole)[1] == 2


@pytest.mark.parametrize(
    "other", [batch(k=["a", "b"], v=[1, 0]), batch(k=["b", "a"], v=[1, None]), batch(k=["a", "b"], v=["1", ""])]
)
def test_a_digest_changes_with_any_value_and_with_the_order(other):
    assert digest_rows([batch(k=["a", "b"], v=[1, None])])[0] != digest_rows([other])[0]


def test_a_digest_refuses_floating_point_numbers():
    with pytest.raises(InvalidDefinition, match="'v' is a floating-point number"):
        digest_rows([batch(v=[0.5])])


def test_a_digest_takes_decimals_and_bytes():
    assert digest_rows([batch(d=[Decimal("1.50")], b=[b"\x00\xff"])])[1] == 1


def test_a_bounded_range_takes_from_every_partition_that_waits():
    offsets = bounded({"a": {0: 0, 1: 5}, "b": {0: 3}}, {"a": {0: 900, 1: 5}, "b": {0: 103}}, max_records=100)
    assert offsets.end == {"a": {0: 90, 1: 5}, "b": {0: 13}}
    assert offsets.records == 100
    assert offsets.changed_topics() == ["a", "b"]


def test_a_bounded_range_always_advances():
    offsets = bounded({"a": {0: 0, 1: 0}}, {"a": {0: 1_000_000, 1: 1}}, max_records=1)
    assert offsets.end == {"a": {0: 1, 1: 1}}


def test_a_small_range_is_taken_whole():
    assert bounded({"a": {0: 1}}, {"a": {0: 3}}, max_records=10) == OffsetRange({"a": {0: 1}}, {"a": {0: 3}})


def test_progress_is_reached_when_every_partition_is():
    assert reached({"a": {0: 5, 1: 5}}, {"a": {0: 5, 1: 4}})
    assert not reached({"a": {0: 5, 1: 3}}, {"a": {0: 5, 1: 4}})


def test_progress_survives_its_json_form():
    assert decode_progress({"a": {"0": 5}}) == {"a": {0: 5}}


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        ('… MARK{"kind":"bad_avro","topic":"t","partition":1,"offset":7,"detail":"order.placed"} …',
         "undecodable-record", "topic t, partition 1, offset 7"),
        ('MARK{"kind":"unknown_schema","topic":"t","partition":1,"offset":7,"detail":"9"}', "unknown-schema-id", "9"),
        ('MARK{"kind":"bad_avro","topic":"t","partition":1,"offset":7,"detail":"factfold:{"}',
         "undecodable-record", "factfold:{"),
        *((f"[CAST_INVALID_INPUT] The value '{forged}' cannot be cast. SQLSTATE: 22018", "code-failed", "CAST_INVALID")
          for forged in ("factfold:{", "factfold:{}", "factfold:{'", 'factfold:{"kind":"bad_avro","topic":"x"}',
                         'factfold:{"kind":"bad_avro","topic":"x","partition":1,"offset":2}', "factfold:" + "{" * 999)),
        ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nam` cannot be "
         "resolved. Did you mean one of the following? [`name`, `id`]. SQLSTATE: 42703", "unknown-column", "name, id"),
        ("Cannot fetch offset 3. Some data may have been lost because …", "offsets-lost", "longer retention"),
        ("Failed to find data source: kafka. Please deploy the application as", "spark-failed", "jars=spark_jars()"),
        ("Traceback (most recent call last):\n  File x\nValueError: too late\n\tat java.lang", "code-failed",
         "ValueError"),
        ("Traceback (most recent call last):\n  File x\nshop.errors.BadError: no", "code-failed",
         "shop.errors.BadError"),
        ("Traceback (most recent call last):\nConnectionResetError: by peer", "spark-failed", "ConnectionResetError"),
        ("[CAST_OVERFLOW] The value 1 cannot be cast. SQLSTATE: 22003", "code-failed", "CAST_OVERFLOW"),
        ("[DUPLICATED_MAP_KEY] Duplicate map key. SQLSTATE: 23505", "spark-failed", "DUPLICATED_MAP_KEY"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly", "spark-failed", "exited"),
    ],
)  # fmt: skip
def test_what_spark_raises_becomes_a_typed_error_with_a_remedy(message, code, words):
    error = translate(message.replace("MARK", MARK), "projection group shop")
    assert error.code == code
    assert words in str(error)


def test_a_partition_that_ends_before_progress_is_refused_even_where_others_wait():
    with pytest.raises(OffsetsLost, match="created again") as caught:
        bounded({"a": {0: 1_000, 1: 10}}, {"a": {0: 500, 1: 800}}, max_records=10_000)
    assert "partition 0" in str(caught.value)


def test_a_partition_that_the_topic_has_grown_begins_at_its_beginning():
    offsets = bounded({"a": {0: 5}}, {"a": {0: 5, 1: 7}}, max_records=100)
    assert offsets == OffsetRange({"a": {0: 5, 1: 0}}, {"a": {0: 5, 1: 7}})


def test_a_log_whose_beginning_is_gone_is_no_whole_log():
    with pytest.raises(OffsetsLost, match="7 offsets have been removed"):
        from_the_beginning({"a": {0: 0, 1: 7}}, {"a": {0: 9, 1: 9}})


def test_a_url_says_which_table_store_is_meant(tmp_path):
    store = open_table_store(f"sqlite:///{tmp_path / 'views.db'}")
    assert store.generations() == []
    store.close()
    assert sqlite_path("sqlite:///shop.db") == "shop.db"
    assert sqlite_path("postgresql+psycopg://u:p@h/d") is None
    assert "p@h" not in repr(open_table_store("postgresql+psycopg://u:p@h/d"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("shop.db", "cannot be read"),
        ("postgres://u:p@h/d", "cannot be stored in 'postgres'"),
        ("mysql://u:p@h/d", "cannot be stored in 'mysql'"),
        ("postgresql+psycopg2://u:p@h/d", r"cannot be stored in 'postgresql\+psycopg2'"),
    ],
)
def test_a_url_that_names_no_database_we_could_share_is_refused(url, words):
    with pytest.raises(TableStoreUnavailable, match=words):
        open_table_store(url)


# ---- what a group may say of the transactions of its sources, and when a rebuild would take something back


ITEMS = sa.Table("items", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), schema="public")


def items_rows(items: Any) -> Any:
    return items


def european_rows(european: Any) -> Any:
    return european


def group(items: str = "shop.public.items", **options: Any) -> ProjectionGroup:
    """A view of this topic, and one of a source whose prefix is longer by a dot."""
    tables = {"items": Table.from_changelog(ITEMS, topic=items, **options)}
    european = {"european": Table.from_changelog(ITEMS, topic="shop.eu.public.items")}
    views = [view(key="id", tables=tables)(items_rows), view(key="id", tables=european)(european_rows)]
    return ProjectionGroup("items", views, transactions=("shop",))


def test_a_prefix_takes_no_topic_of_a_prefix_that_begins_with_it() -> None:
    made = group()
    assert made.captured_by("shop") == ("shop.public.items",)
    assert made.captured_by("shop.eu") == ("shop.eu.public.items",)
    assert made.captured_by("sho") == ()
    with pytest.raises(InvalidDefinition, match="reads no topic of that prefix"):
        group("other.public.items")


def test_transactions_of_a_source_in_avro_are_refused_when_declared() -> None:
    with pytest.raises(InvalidDefinition, match=r"shop\.public\.items is Avro"):
        group(encoding="avro")
    assert group(encoding="json-with-schemas").transactions == ("shop",)


def test_a_rebuild_that_would_end_before_what_is_served_is_refused() -> None:
    ends = {"shop.public.items": {0: 1_010, 1: 7}}
    served = {"shop.public.items": {0: 1_010, 1: 5}}
    with raises(ProjectionError, code="end-not-known", match=r"serves 1010 offsets.* only up to 10") as refused:
        require_served(served, {"shop.public.items": {0: 10, 1: 5}}, ends, group="items")
    assert refused.value.place == "topic shop.public.items, partition 0"
    require_served(served, served, ends, group="items")
    require_served({}, {"shop.public.items": {0: 0, 1: 0}}, ends, group="items")


def test_a_topic_that_was_made_anew_is_rebuilt_though_it_ends_before() -> None:
    served, anew = {"shop.public.items": {0: 1_010}}, {"shop.public.items": {0: 12}}
    require_served(served, {"shop.public.items": {0: 10}}, anew, group="items")


# ---- what a PostgreSQL URL says reaches the connections of both drivers


SAID = {
    "u:p%40%2F@h/d?sslmode=verify-full&sslrootcert=/etc/the%20root.pem": {
        "user": "u", "password": "p@/", "host": "h", "dbname": "d", "sslmode": "verify-full",
        "sslrootcert": "/etc/the root.pem",
    },
    "u:p@[::1]:5433/d": {"host": "::1", "port": "5433"},
    "u@/d?host=/var/run/postgresql": {"user": "u", "host": "/var/run/postgresql"},
    "u@/d?host=a:1&host=b:2&target_session_attrs=primary": {
        "host": "a,b", "port": "1,2", "target_session_attrs": "primary",
    },
    "u@h/d?options=-c%20search_path%3Dours&application_name=views": {
        "options": "-c search_path=ours", "application_name": "views",
    },
}  # fmt: skip


@pytest.mark.parametrize("url", SAID)
def test_everything_that_the_url_says_is_in_the_uri_of_the_rows_driver(url):
    with closing(PostgresTableStore(f"postgresql+psycopg://{url}")) as store:
        uri = store.uri
    told = psycopg.conninfo.conninfo_to_dict(uri)  # as libpq reads it
    assert {name: str(told[name]) for name in SAID[url]} == SAID[url]
    assert set(parse_qs(urlsplit(uri).query)) == set(told)


def test_what_is_psycopg_s_own_in_the_url_is_not_told_to_libpq():
    with closing(PostgresTableStore("postgresql+psycopg://u@h/d?prepare_threshold=none&sslmode=require")) as store:
        told = psycopg.conninfo.conninfo_to_dict(store.uri)  # which refuses an option that libpq does not know
    assert told == {"user": "u", "host": "h", "dbname": "d", "sslmode": "require"}


@pytest.mark.parametrize(("said", "meant"), [("none", None), ("0", 0), ("7", 7)])
def test_how_often_a_statement_is_sent_before_it_is_prepared_is_said_in_the_url(monkeypatch, said, meant):
    seen = {}
    monkeypatch.setattr(psycopg, "connect", lambda **options: seen.update(options) or 1 / 0)
    with closing(PostgresTableStore(f"postgresql+psycopg://u@h/d?prepare_threshold={said}")) as store:
        with pytest.raises(ZeroDivisionError), store.looking():
            pass
    assert seen["prepare_threshold"] == meant


@pytest.mark.parametrize("opened", [engine_for, database_of_a_source], ids=["stores", "sources of connectors"])
def test_every_other_database_of_a_url_is_opened_alike(monkeypatch, opened):
    seen = {}
    monkeypatch.setattr(psycopg, "connect", lambda **options: seen.update(options) or 1 / 0)
    engine = opened("postgresql+psycopg://u@h/d?prepare_threshold=none")
    with pytest.raises(ZeroDivisionError):
        engine.connect()
    assert seen["prepare_threshold"] is None
