"""One connector that runs, looked after: its health, its doctor, its supervisor, its password."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

import cdc
from cdc import ConnectClient, Severity, Supervisor, diagnose_connector
from cdc.connect.status import FAILED, PAUSED, RUNNING, STOPPED
from cdc.connectors.secrets import replace_secrets
from cdc.errors import ConnectRejected, RestartsExhausted, SourceNotReady
from eventstore import Restarts
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.settings import Settings
from sample_app.background import Background
from tests.unit.test_documentation import ON_SERVERS, ROOT, program
from tests.waiting import wait_until

if TYPE_CHECKING:
    pass

TABLES = ("public.items", "public.parts")
# Rows written after the last step of a rotation, and before its first.
MARGIN = 50


@pytest.fixture(scope="module")
def shop(captured: Callable[[], Any]) -> Any:
    return captured(
        "CREATE TABLE items (id bigserial PRIMARY KEY, name text)",
        "INSERT INTO items (name) VALUES ('nail')",
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
    )


@pytest.fixture(scope="module")
def source(connect: ConnectClient, shop: Any, settings: Settings) -> Any:
    """A connector that runs; every test leaves it running as declared."""
    declared = shop.prepared(shop.source(tables=TABLES))
    ensure_topics(settings, declared.topic_specs)
    cdc.apply_connector(connect, declared, source=shop.engine)
    return declared


def test_health_tells_the_slot_and_the_age_of_the_last_event(connect, shop, source):
    def found() -> Any:
        return cdc.connector_health(connect, source, source=shop.engine)[0]

    first = found()
    assert (first.status.running, first.slot.active, first.slot.wal_status) == (True, True, "reserved")
    # Nothing is written but heartbeats: the slot follows them, the last event grows old.
    wait_until(lambda: found().last_event_age > first.last_event_age + 2, what="age")
    old = found()
    assert old.slot.lag_bytes < 1 << 20
    shop.run("INSERT INTO items (name) VALUES ('screw')")
    wait_until(lambda: found().last_event_age < old.last_event_age, what="the event")
    assert cdc.connector_health(connect, shop.name)[0].slot is None


def test_health_tells_what_waits_for_one_that_rests(connect, shop, source):
    cdc.set_connector_state(connect, shop.name, STOPPED)
    before = cdc.connector_health(connect, shop.name, source=shop.engine)[0].slot
    shop.run("INSERT INTO items (name) SELECT repeat(md5(n::text), 50) FROM generate_series(1, 1000) n")
    (found,) = [one for one in cdc.connector_health(connect, source=shop.engine) if one.status.name == shop.name]
    assert (found.status.state, found.slot.active) == (STOPPED, False)
    assert found.slot.lag_bytes - before.lag_bytes > 1_000_000
    assert found.slot.retained_bytes >= found.slot.lag_bytes
    cdc.set_connector_state(connect, shop.name, RUNNING)


def test_a_connector_that_is_well_has_nothing_to_find(connect, shop, source, settings, cdc_of):
    # A connector that was just started again takes a moment until it reads its slot.
    wait_until(
        lambda: cdc.connector_health(connect, shop.name, source=shop.engine)[0].slot.active, what="a reader of its slot"
    )
    found = diagnose_connector(source, source=shop.engine, client=connect, settings=settings)
    assert [one for one in found if one.severity is not Severity.OK] == []
    checks = {one.check.split()[0] for one in found}
    assert {"worker", "plug-in", "connector", "slot", "topic", "table", "role", "publication"} <= checks
    words = ("doctor", "declared_here:source", "--kafka-bootstrap-servers", settings.kafka.bootstrap_servers)
    assert cdc_of(shop, source=source)(*words).exit_code == 0


def otherwise(shop: Any, **changes: Any) -> Any:
    """The declaration of the connector that runs, with something changed."""
    return shop.source(**{"tables": TABLES, **changes})


def errors_of(connector: Any, **sides: Any) -> list[tuple[str, str, str]]:
    found = diagnose_connector(connector, **sides)
    return [(one.severity.value, one.result, one.remedy) for one in found if one.severity is not Severity.OK]


def test_what_is_wrong_at_the_worker_is_found_from_there(connect, shop, stack):
    wrong = cdc.write_secrets(stack.info.secrets_dir, f"{shop.name}-wrong", values={"password": "wrong"})
    ((severity, found, remedy),) = errors_of(
        otherwise(shop, password=wrong["password"], extra={"max.batch.size": 99}), client=connect
    )[:1]
    assert (severity, "password authentication failed" in found) == ("error", True)
    assert "the password behind the connector's reference" in remedy
    (*_, (severity, found, remedy)) = errors_of(otherwise(shop, extra={"max.batch.size": 99}), client=connect)
    assert (severity, "other settings than declared: max.batch.size" in found) == ("warning", True)
    (*_, (severity, found, remedy)) = errors_of(otherwise(shop, name=f"{shop.name}-new"), client=connect)
    assert (severity, remedy) == ("warning", "factfold cdc apply")
    with ConnectClient("http://127.0.0.1:9", patience=0.1) as nobody:
        ((severity, found, remedy),) = errors_of(otherwise(shop), client=nobody)
    assert (severity, "no Kafka Connect worker answers" in found, "start the worker" in remedy) == ("error", True, True)


def test_a_plug_in_that_is_not_there_is_found(connect, shop, source):
    class Other:
        name = shop.name

        def config(self) -> dict[str, str]:
            return {**source.config(), "connector.class": "io.example.NoConnector"}

        def check_source(self, engine: Any) -> None:
            raise AssertionError

    ((severity, found, remedy),) = errors_of(Other(), client=connect)
    assert (severity, "no io.example.NoConnector" in found, "plugin.path" in remedy) == ("error", True, True)


@pytest.fixture
def failed(connect: ConnectClient, shop: Any, source: Any) -> Iterator[None]:
    """The connector's publication is dropped and its task fails; both are well again afterwards."""
    shop.run(f"DROP PUBLICATION {source.publication}")
    connect.restart(shop.name)
    wait_until(lambda: connect.status(shop.name).failure, what="the failure")
    yield
    shop.prepared(source)
    cdc.apply_connector(connect, source, source=shop.engine)
    assert cdc.restart_connector(connect, shop.name, source=shop.engine).running


@pytest.mark.usefixtures("failed")
def test_a_supervisor_gives_up_loudly_and_brings_back_what_was_repaired(connect, shop, source, settings):
    hasty = Restarts(limit=1, first=0.1)
    with capture_logs() as logs, pytest.raises(RestartsExhausted, match="Publication autocreation") as exhausted:
        Supervisor(connect, [shop.name], policy=hasty, poll=0.1).run(threading.Event())
    assert [log["event"] for log in logs] == ["connector failed", "connector restarted", "connector given up"]
    assert "factfold cdc prepare" in exhausted.value.remedy
    (*_, (severity, found, remedy)) = errors_of(source, client=connect)
    assert (severity, "Publication autocreation is disabled" in found) == ("error", True)
    assert f"factfold cdc restart --failed {shop.name}" in remedy

    stop, patient = threading.Event(), Restarts(limit=100, first=0.2, longest=0.2)
    with ThreadPoolExecutor(1) as pool:
        supervision = pool.submit(Supervisor(connect, [shop.name], policy=patient, poll=0.1).run, stop)
        shop.prepared(source)
        wait_until(lambda: connect.status(shop.name).running and streams(connect, shop), what="a stream again")
        stop.set()
        assert supervision.result(timeout=60) is None


def streams(connect: ConnectClient, shop: Any) -> bool:
    health = cdc.connector_health(connect, shop.name, source=shop.engine)[0]
    return health.slot is not None and health.slot.active


@contextmanager
def written(shop: Any) -> Iterator[Callable[[], None]]:
    """Rows are written, each in a transaction of its own. The function waits until some more are."""
    rows = [0]

    def write(stop: threading.Event) -> None:
        while not stop.wait(0.005):
            shop.run("INSERT INTO items (name) VALUES ('rotated')")
            rows[0] += 1

    def go_on() -> None:
        enough = rows[0] + MARGIN
        wait_until(lambda: rows[0] >= enough, what="more rows")

    with Background(write, name="writer").running():
        go_on()
        yield go_on
        go_on()


def may_log_in(shop: Any, source: Any, password: str) -> bool:
    engine = create_engine(shop.engine.url.set(username=source.user, password=password))
    try:
        with engine.connect() as connection:
            return connection.execute(text("SELECT 1")).scalar_one() == 1
    except OperationalError:
        return False
    finally:
        engine.dispose()


def test_a_password_is_rotated_while_rows_are_written_and_each_arrives_once(connect, shop, source, settings, cdc_of):
    run = cdc_of(shop, source=source)
    with written(shop) as go_on:
        (status,) = cdc.rotate_password(connect, source, source=shop.engine, password=SecretStr("new = \\ ü"))
        assert status.running
        go_on()
        assert run("rotate-password", "declared_here:source").stdout == f"{shop.name}  rotated  {status.summary()}\n"
    assert not may_log_in(shop, source, shop.password)
    assert not may_log_in(shop, source, "new = \\ ü")
    expected = {row[0] for row in shop.rows("SELECT id FROM items")}
    assert len(expected) > MARGIN * 3

    def arrived() -> Counter[int]:
        return Counter(json.loads(record.key)["id"] for record in read_range(settings, source.topic("public.items")))

    wait_until(lambda: arrived().keys() >= expected, what="every row")
    assert arrived() == Counter(expected)
    cdc.rotate_password(connect, source, source=shop.engine, password=shop.password)


def test_a_rotation_that_fails_in_the_middle_leaves_a_stream_and_is_repaired_by_another(connect, shop, source):
    elsewhere: list[SecretStr] = []

    def broken(secret: SecretStr) -> None:
        raise OSError("the vault is closed")

    def write_and_cut(secret: SecretStr) -> None:
        replace_secrets([source.config()["database.password"]], secret)
        shop.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        )

    for write, kind, words in (
        (broken, OSError, "the vault is closed"),
        (elsewhere.append, ConnectRejected, "(?s)password authentication failed.*rotate again"),
        (write_and_cut, SourceNotReady, None),
    ):
        with pytest.raises(kind, match=words):
            cdc.rotate_password(connect, source, source=shop.engine, password="never", write=write)
        assert streams(connect, shop)
        (status,) = cdc.rotate_password(connect, source, source=shop.engine, password=shop.password)
        assert (status.running, may_log_in(shop, source, shop.password)) == (True, True)
    assert [secret.get_secret_value() for secret in elsewhere] == ["never"]


@pytest.fixture
def sharer(connect: ConnectClient, shop: Any, source: Any, captured: Callable[[], Any]) -> Any:
    """A connector to another database that logs in as the same role, with a secret of its own."""
    apart = captured("CREATE TABLE items (id int PRIMARY KEY)")
    declared = apart.source(tables=("public.items",), user=source.user)
    cdc.prepare_source(apart.engine, declared)
    replace_secrets([declared.config()["database.password"]], shop.password)
    cdc.apply_connector(connect, declared, source=apart.engine)
    return declared


def test_all_connectors_of_a_role_get_its_password_wherever_they_read_it(
    connect, shop, source, sharer, cdc_of, monkeypatch
):
    marked: dict[str, Any] = {}

    def restart(client: ConnectClient, name: str, **words: Any) -> Any:
        marked[name] = words["source"] and words["source"].url.database
        return cdc.restart_connector(client, name, **words)

    monkeypatch.setattr("cdc.operating.rotation.restart_connector", restart)
    run = cdc_of(shop, both=[source, sharer])
    rotated = run("rotate-password", "declared_here:both", "--json", "--timeout", "30")
    assert [json.loads(line)["state"] for line in rotated.stdout.splitlines()] == [RUNNING, RUNNING]
    # A mark in a log that a connector does not read proves nothing of it.
    assert marked == {source.name: source.database, sharer.name: None}
    (secret,) = {read_secret(one) for one in (source, sharer)}

    cdc.prepare_source(shop.engine, source)
    assert may_log_in(shop, source, secret)
    cdc.set_connector_state(connect, sharer.name, PAUSED)
    both = cdc.rotate_password(connect, source, source=shop.engine, password=shop.password)
    assert {one.name: one.state for one in both} == {source.name: RUNNING, sharer.name: PAUSED}
    assert cdc.set_connector_state(connect, sharer.name, RUNNING).running
    cdc.delete_connector(connect, sharer.name, forget=True)


def read_secret(connector: Any) -> str:
    path = connector.config()["database.password"].removeprefix("${file:").removesuffix(":password}")
    return Path(path).read_text().removeprefix("password=").rstrip("\n")


def test_the_page_about_operating_connectors_runs(connect, shop, source):
    def keep(vault: dict[str, str], secret: SecretStr) -> None:
        vault["password"] = secret.get_secret_value()
        replace_secrets([source.config()["database.password"]], secret)

    names = {"client": connect, "engine": shop.engine, "rows": source, "keep": keep}
    page = ROOT / "docs" / "how-to" / "operate-connectors.md"
    exec(compile(program(page, ON_SERVERS), str(page), "exec"), names)
    assert may_log_in(shop, source, names["vault"]["password"])
    assert all(finding.severity is Severity.OK for finding in names["findings"])


def test_the_slot_that_a_connector_streamed_from_is_missed(connect, shop, source):
    cdc.set_connector_state(connect, shop.name, STOPPED)
    cdc.drop_slot(shop.engine, source.slot)
    ((_, found, remedy), _) = sorted(errors_of(source, client=connect, source=shop.engine), key=lambda one: one[0])
    assert "does not exist, and the connector has streamed from it" in found
    assert "--forget" in remedy
    cdc.delete_connector(connect, shop.name, forget=True)
    assert FAILED not in {one.status.state for one in cdc.connector_health(connect)}
