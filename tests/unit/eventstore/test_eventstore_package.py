"""The package root is small, and the embedded store needs neither PostgreSQL's driver nor asyncio's packages."""

from __future__ import annotations

import subprocess
import sys

import eventstore
from eventstore import errors


def test_the_root_has_no_errors_and_is_small_enough_to_read() -> None:
    assert set(errors.__all__) & set(eventstore.__all__) == set()
    assert len(eventstore.__all__) <= 60


def test_the_embedded_store_and_its_subscriber_need_no_postgres_driver_and_nothing_of_asyncio() -> None:
    absent = "import sys; sys.modules.update(dict.fromkeys(('psycopg', 'greenlet', 'aiosqlite')))"
    use = "from eventstore import SqlEventStore; store = SqlEventStore('sqlite://'); store.create_tables()"
    subprocess.run([sys.executable, "-c", f"{absent}; {use}; store.close(); import eventstore.subscribing"], check=True)
