"""Pages whose Python needs servers, run on those of the session, each in an empty database."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import re
import runpy
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa

from cdc import delete_connector, drop_slot
from eventstore import ANY, Settings, SqlEventStore
from eventstore.relay import Relay
from projections import Environment, ViewTopic, open_runner, rebuild
from projections.outputs.kafka import KafkaViewTopics
from tests.crates import Crate
from tests.unit.test_documentation import HERE, ON_SERVERS, ROOT, blocks, program
from tests.waiting import wait_until

_URL = re.compile(r'"postgresql\+psycopg://[^"]*"')

Run = Callable[..., ModuleType]


@pytest.fixture
def run(url: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs a page from top to bottom and returns it as a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", settings.kafka.bootstrap_servers)

    def run(page: str) -> ModuleType:
        text = program(ROOT / "docs" / "how-to" / page, HERE, ON_SERVERS)
        name = f"page_{re.sub(r'[^a-z]', '_', page)}"
        file = tmp_path / f"{name}.py"
        file.write_text(_URL.sub(repr(url), text), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)  # annotations are looked up there
        spec.loader.exec_module(module)
        return module

    return run


def test_the_page_about_tenants(run, url, capsys):
    page = run("maintain-a-store.md")
    assert capsys.readouterr().out == "[]\n"
    for tenant in ("acme", "globex"):
        dispatcher = page.service_of(tenant, Crate)
        dispatcher.store.append("crate-1", [Crate.Filled(grams=1)], expected=ANY)
        assert [one.topic for one in dispatcher.store.categories()] == [f"{tenant}-crate"]
    assert page.tenants(page.engine) == ["acme", "globex"]
    with page.engine.connect() as connection:
        schemas = set(sa.inspect(connection).get_schema_names())
    assert {"orders", "billing", "tenant_acme", "tenant_globex"} <= schemas
    for opened in [value for value in vars(page).values() if isinstance(value, SqlEventStore)]:
        opened.close()
    page.engine.dispose()


def test_the_page_about_the_relay(run, url, capsys):
    with SqlEventStore(url) as store:
        store.create_tables()
        store.declare_category("crate", partitions=2, topic=f"crate.{uuid.uuid4().hex[:8]}")
        store.append("crate-1", [Crate.Filled(grams=grams) for grams in range(5)], expected=ANY)
    page = run("run-without-connect.md")
    assert (page.report.events, page.report.transactions) == (5, 1)
    assert capsys.readouterr().out.splitlines()[-1] == "None"


async def test_the_page_about_asyncio(run, url, settings):
    page = await asyncio.to_thread(run, "use-asyncio.md")  # it has event loops of its own
    engine = sa.create_engine(url)
    page.parcels.metadata.create_all(engine)
    with SqlEventStore(engine) as store:
        store.create_tables()
        store.declare_category("order", partitions=1, topic="order.tea")
        store.append("order-o9", [page.Order.Placed(sku="tea")], expected=ANY)
        Relay(store, settings).run(stop=threading.Event(), once=True)
    async with page.lifespan(None):
        async with asyncio.timeout(60):
            while not packed(engine, page.parcels):
                await asyncio.sleep(0.1)
    assert packed(engine, page.parcels) == ["tea"]
    engine.dispose()


def packed(engine: sa.Engine, parcels: sa.Table) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.select(parcels.c.sku)))


def files_of(page: str, folder: Path, url: str, *, own: str) -> None:
    """Write the files that a page's blocks begin with the name of; topics and role get a name of their own."""
    for block in blocks(ROOT / "docs" / "how-to" / page):
        if block.kind == ON_SERVERS and re.match(r"# \w+/\w+\.py$", block.lines[0]):
            file = folder / block.lines[0].removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            text = _URL.sub(repr(url), "\n".join(block.lines))
            for shared in ('topic_prefix="shop"', "shop.public.{", "shop_cdc"):
                text = text.replace(shared, shared.replace("shop", own, 1))
            file.write_text(text, encoding="utf-8")


def test_the_page_that_shows_a_table_in_another_service(url, stack, connect, environment, tmp_path, monkeypatch):
    shop = sa.create_engine(url)
    with shop.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE regions (id integer PRIMARY KEY, title text NOT NULL)")
        connection.exec_driver_sql("CREATE TABLE customers (id integer PRIMARY KEY, name text, region_id integer)")
        connection.exec_driver_sql("INSERT INTO regions VALUES (1, 'North')")
        connection.exec_driver_sql("INSERT INTO customers VALUES (7, 'Ann', 1)")
    monkeypatch.setenv("FACTFOLD_SECRETS", str(stack.info.secrets_dir))
    monkeypatch.setenv("FACTFOLD_CONNECT_URL", connect.url)
    files_of("capture-a-table.md", tmp_path, url, own=f"shop{uuid.uuid4().hex[:8]}")
    monkeypatch.syspath_prepend(tmp_path)
    started = runpy.run_module("shop.sources", run_name="__main__")
    page = importlib.import_module("mail.views")
    mail = environment()
    rebuild(mail, page.mail)
    with open_runner(mail, page.mail) as runner, shop.begin() as connection:
        connection.exec_driver_sql("UPDATE regions SET title = 'South'")
        connection.commit()
        wait_until(lambda: (runner.run_once(), addressees(mail) == [(7, "Ann", "South")])[1])
    for name in [name for name in sys.modules if name.partition(".")[0] in ("shop", "mail")]:
        del sys.modules[name]
    delete_connector(connect, started["rows"].name, forget=True)
    drop_slot(shop, started["rows"].slot)
    started["shop"].dispose()
    shop.dispose()


def addressees(mail: Environment) -> list[tuple[object, ...]]:
    with mail.store.transaction() as connection:
        return [tuple(row) for row in connection.execute(sa.text("SELECT id, name, title FROM addressees"))]


def test_the_page_about_view_topics(run, settings):
    topics = KafkaViewTopics(settings)
    topics.ensure([ViewTopic("order-details").spec])
    rows: list[dict[str, Any]] = [
        {"key": f'{{"id":{number}}}', "value": f'{{"id":{number},"customer":"Ann","amount":"1.50"}}'}
        for number in range(3)
    ]
    with topics.producer("page") as producer:
        producer.send({"order-details": rows})
        producer.send({"order-details": [{"key": '{"id":1}', "value": None}]})
    page = run("publish-a-view.md")
    with closing(page.consumer):
        taken = 0
        while taken < 4:
            taken += page.take()
    with page.database.connect() as connection:
        found = connection.execute(sa.text("SELECT * FROM order_customers ORDER BY id")).all()
    assert found == [(0, "Ann"), (2, "Ann")]
    page.database.dispose()
