"""The package root offers a fixed list of names and loads nothing before it is used."""

from __future__ import annotations

import subprocess
import sys

import eventstore
from eventstore import errors

HEAVY = ["confluent_kafka", "fastavro", "pydantic", "pyspark", "requests", "sqlalchemy", "stamina"]


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; sys.stdout.write(' '.join(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_public_names_are_sorted_and_all_exist() -> None:
    assert sorted(eventstore.__all__) == sorted(set(eventstore.__all__)) == sorted(dir(eventstore))
    assert all(getattr(eventstore, name) is not None for name in eventstore.__all__)


def test_the_root_has_no_errors_and_is_small_enough_to_read() -> None:
    assert set(errors.__all__) & set(eventstore.__all__) == set()
    assert len(eventstore.__all__) <= 60


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    assert not hasattr(eventstore, "no_such_name")


def test_importing_the_package_loads_no_client() -> None:
    assert _loaded_by("import eventstore") == set()


def test_the_embedded_store_does_without_the_postgres_driver() -> None:
    use = "from eventstore import SqlEventStore; SqlEventStore('sqlite://')"
    code = f"import sys; {use}; assert 'psycopg' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_synchronous_store_and_subscriber_do_without_what_asyncio_needs() -> None:
    use = (
        "from eventstore import SqlEventStore; store = SqlEventStore('sqlite://'); store.create_tables(); store.close()"
    )
    code = (
        f"import sys; sys.modules['greenlet'] = sys.modules['aiosqlite'] = None; {use}; import eventstore.subscribing"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_declaring_aggregates_loads_no_client() -> None:
    assert _loaded_by("from eventstore import Aggregate, command, event, Digits, NO_STREAM") == set()
