"""Columns of any names, captured in each encoding through a change of the schema: shown, compared, repaired."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from cdc import (
    ApicurioAvro,
    ChangeDecoder,
    ConnectClient,
    JsonWithSchemas,
    PlainJson,
    Severity,
    apply_connector,
    diagnose_connector,
)
from cdc.source.signals import Signals
from eventstore import RegistrySettings, Settings
from eventstore.kafka import ConfluentRegistry
from eventstore.kafka.admin import ensure_topics
from eventstore.topics import schemas_topic
from projections import Environment, ProjectionGroup, Table, rebuild, verify, view
from projections.spark.reading.kafka_source import KafkaLog
from projections.spark.session import small_batch_session
from projections.stores.compared import captured_models
from projections.stores.postgres import PostgresTableStore
from tests.integration.compared import Shop, repairable_source
from tests.integration.conftest import Captured
from tests.integration.following import followed

# The names of the source, and the short ones of the views.
NAMES = {
    "number": "Bestell-Nr.",
    "customer_id": "customerId",
    "ordered_on": "Order Date",
    "size": "Größe",
    "share": "Rabatt %",
    "net": "the_net_amount_that_was_agreed_upon_with_sales",
    "first": "1st",
    "dotted": "a.b",
    "key_sign": "🔑",
    "quoted": 'it\'s "so" `or` \\so',
    "remark": "number",  # what another column is named in views
}
KINDS: dict[str, Any] = {
    "number": sa.BigInteger, "ordered_on": sa.Date, "size": sa.Numeric(10, 2), "share": sa.Double,
}  # fmt: skip
LEGACY = sa.Table(
    "legacy",
    sa.MetaData(),
    *(
        sa.Column(name, KINDS.get(key, sa.Text), key=key, primary_key=key == "number", autoincrement=False)
        for key, name in NAMES.items()
    ),
    schema="public",
)
FIRST = {name: f"{name} of 1" for name in NAMES} | {
    "number": 1, "ordered_on": dt.date(1999, 2, 28), "size": Decimal("1.50"), "share": 0.5,
}  # fmt: skip
SECOND = dict.fromkeys(NAMES) | {"number": 2}
ENCODINGS = {"json": PlainJson, "json-with-schemas": JsonWithSchemas, "avro": ApicurioAvro}


@pytest.fixture(params=ENCODINGS)
def shop(
    request: Any, captured: Callable[[], Captured], connect: ConnectClient, settings: Settings, registry_url: str
) -> tuple[Captured, Any, Table]:
    database = captured()
    LEGACY.create(database.engine)
    with database.engine.begin() as connection:
        connection.execute(LEGACY.insert(), FIRST)
    apicurio = {"registry_url": registry_url.replace("/apis/ccompat/v7", "/apis/registry/v3")}
    encoding = ENCODINGS[request.param](**(apicurio if request.param == "avro" else {}))
    source = database.prepared(repairable_source(database, "legacy", encoding=encoding, epoch=3))
    ensure_topics(settings, [schemas_topic(), *source.topic_specs])
    apply_connector(connect, source, source=database.engine)
    table = Table.from_changelog(LEGACY, topic=source.topics[0], name="legacy", encoding=request.param)
    return database, source, table


@pytest.fixture
def views(spark: Any, settings: Settings, shop: Any, registry: ConfluentRegistry) -> Iterator[Environment]:
    store = PostgresTableStore(shop[0].engine.url.render_as_string(hide_password=False))
    store.prepare()
    known = settings.model_copy(update={"registry": RegistrySettings(url=registry.address)})
    yield Environment(spark, small_batch_session(spark), store, KafkaLog(known))
    store.close()


def group_over(table: Table) -> ProjectionGroup:
    @view(key="number", tables={"legacy": table})
    def shown_orders(legacy: Any) -> Any:
        return legacy.select(*NAMES)

    return ProjectionGroup("shown", [shown_orders])


def rows(database: Captured, relation: str, *names: str) -> list[tuple[Any, ...]]:
    """What the columns of a relation hold, in the order of the first."""
    columns = [sa.column(name) for name in names]
    with database.engine.connect() as connection:
        found = connection.execute(sa.select(*columns).select_from(sa.table(relation)).order_by(columns[0]))
        return [tuple(row) for row in found]


def test_views_show_what_the_source_has_under_other_names(shop, views, settings, connect, records_of, registry):
    database, source, table = shop
    group = group_over(table)
    records_of(source.topics[0], count=1)
    rebuild(views, group)
    with database.engine.begin() as connection:
        connection.execute(LEGACY.insert(), SECOND)
    database.run("ALTER TABLE legacy ADD COLUMN later text")  # records have another schema from here on
    with database.engine.begin() as connection:
        connection.execute(LEGACY.update().where(LEGACY.c.number == 1).values(quoted="new", remark=None))
    shop = Shop(database, source, settings, views, group)
    with followed(views, group):
        (found,) = shop.compare(patience=200)
        if table.encoding != "avro":  # whose rows are not corrected
            shop.in_state('UPDATE "{0}".state_legacy SET size = 9 WHERE number = 1')
            (repaired,) = shop.compare(patience=200, repair=Signals(database.engine, source, settings, connect))
            assert (repaired.repaired, repaired.equal) == (1, True)
    assert rows(database, "shown_orders", *NAMES) == rows(database, "legacy", *NAMES.values())
    assert (found.source_rows, found.equal, found.faults) == (2, True, ())
    assert found.notes == ("column later of the source is not declared in the model",)
    assert found.not_compared == {"share": "named with a percent sign in the source: Rabatt %"}
    assert all(verdict.equal for verdict in verify(views, group).values())
    # The doctor asks the same question of the models alone.
    findings = diagnose_connector(source, source=database.engine, models=captured_models(group))
    told = [one for one in findings if one.check.startswith("model") and one.severity is not Severity.OK]
    assert [(one.severity, one.result) for one in told] == [
        (Severity.WARNING, "column share is named with a percent sign in the source: Rabatt %")
    ]
    records = records_of(source.topics[0], count=3)
    decoder = ChangeDecoder(LEGACY, schemas=registry.schema if table.encoding == "avro" else None)
    changes = [decoder.decode(record.key, record.value, offset=record.offset) for record in records]
    for row in (FIRST, SECOND, FIRST | {"quoted": "new", "remark": None}):
        assert {LEGACY.c[key].name: value for key, value in row.items()} in [change.after for change in changes]
    assert {change.position.epoch for change in changes if change.position} == {3}
    if table.encoding == "avro":
        assert len({int.from_bytes(record.value[1:5], "big") for record in records if record.value}) == 2
