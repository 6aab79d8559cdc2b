"""Stores and views behind PgBouncer, which gives each transaction another connection, with a setting that works."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url

from eventstore import NO_STREAM, Aggregate, SqlEventStore, event
from eventstore.errors import UnsupportedBackend
from factfold.stack.ports import free_ports, is_free
from projections import AppliedVersions
from projections.errors import TableStoreUnavailable
from projections.stores.opening import open_table_store
from tests.conformance.ticket_batches import batch, served, stage_ticket
from tests.waiting import wait_until

_SERVERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
STREAMS, EVENTS = 8, 20


class Parcel(Aggregate):
    @event
    class Weighed:
        grams: int


@pytest.fixture
def pooled(database: Callable[[], str], tmp_path: Path) -> Iterator[URL]:
    """The URL of an empty database behind a pooler of transactions with two connections."""
    program = shutil.which("pgbouncer", path=_SERVERS)
    if program is None:
        pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
    there, port = make_url(database()), free_ports(["pooler"])["pooler"]
    settings = tmp_path / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n{there.database} = host={there.host} port={there.port} user={there.username}"
        f" password={there.password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        "auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nlogfile = /dev/stderr\n"
    )
    os.chmod(tmp_path, 0o755)
    settings.chmod(0o644)
    # It refuses to run as root.
    account = ["-u", "nobody"] if os.geteuid() == 0 else []
    running = subprocess.Popen(
        [program, "-q", *account, settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: not is_free(port), what="the pooler")
        yield there.set(port=port)
    finally:
        running.terminate()
        running.wait()


def append_and_read(store: SqlEventStore) -> None:
    """Several threads, so that a transaction meets a connection that has prepared other statements."""
    store.create_tables()
    store.register(Parcel)

    def fill(number: int) -> None:
        for version in range(EVENTS):
            store.append(
                f"parcel-{number}", [Parcel.Weighed(grams=version)], expected=version - 1 if version else NO_STREAM
            )
            assert len(list(store.read_stream(f"parcel-{number}"))) == version + 1

    with ThreadPoolExecutor(STREAMS) as threads:
        list(threads.map(fill, range(STREAMS)))


def test_a_store_says_what_a_pooler_of_transactions_needs(pooled):
    with SqlEventStore(pooled) as store:
        with pytest.raises(UnsupportedBackend, match="pooler") as refused:
            append_and_read(store)
    assert "prepare_threshold=none" in refused.value.remedy


def test_a_store_works_behind_one_with_the_setting(pooled):
    with SqlEventStore(pooled.update_query_dict({"prepare_threshold": "none"})) as store:
        append_and_read(store)
        assert len(list(store.read_all())) == STREAMS * EVENTS


def wait_in_threads(url: URL) -> None:
    """Services wait for their own writes, so often that each statement would be prepared."""
    text = url.render_as_string(hide_password=False)

    def wait(version: int) -> None:
        assert versions.wait_for("ticket-t1", 0) == 0

    with closing(open_table_store(text)) as store:
        store.prepare()
        run, layout = served(store)
        batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", 0), "t1", to=1)
        with (
            AppliedVersions(text, group="tickets", table="tickets") as versions,
            ThreadPoolExecutor(STREAMS) as threads,
        ):
            list(threads.map(wait, range(STREAMS * EVENTS)))


def test_views_say_what_a_pooler_of_transactions_needs(pooled):
    with pytest.raises(TableStoreUnavailable, match="prepared statement") as refused:
        wait_in_threads(pooled)
    assert "prepare_threshold=none" in refused.value.remedy


def test_a_service_waits_for_its_own_write_behind_one_with_the_setting(pooled):
    wait_in_threads(pooled.update_query_dict({"prepare_threshold": "none"}))
