"""A table captured as Avro, its schemas in the registry: decoded in Python, and kept as a view by Spark."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from cdc import ApicurioAvro, ChangeDecoder, Op, PostgresSource, apply
from eventstore import RegistrySettings, Settings
from eventstore.errors import RegistryUnreachable
from eventstore.kafka import ConfluentRegistry
from eventstore.kafka.admin import ensure_topics
from eventstore.topics import TopicRecord, schemas_topic
from projections import Environment, ProjectionGroup, Table, open_runner, rebuild, verify, view
from projections.spark.reading.kafka_source import KafkaLog

CUSTOMERS = sa.Table(
    "customers",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("credit", sa.Numeric(12, 2)),
    sa.Column("seen", sa.DateTime(timezone=True)),
    sa.Column("born", sa.Date),
    schema="public",
)
ANN = {
    "id": 1,
    "name": "Ann",
    "credit": Decimal("-12.50"),
    "seen": dt.datetime(2024, 1, 2, 3, 4, 5, 678901, dt.UTC),
    "born": dt.date(1980, 2, 29),
}
BOB = ANN | {"id": 2, "name": "Bob", "credit": None}


@pytest.fixture(scope="module")
def shop(captured: Callable[[], Any], connect: Any, registry_url: str, settings: Settings) -> Any:
    """A captured table with one row before the connector's start."""
    shop = captured()
    CUSTOMERS.create(shop.engine)
    with shop.engine.begin() as connection:
        connection.execute(CUSTOMERS.insert(), ANN)
    avro = ApicurioAvro(
        registry_url=registry_url.replace("/apis/ccompat/v7", "/apis/registry/v3"), times="adaptive", decimals="precise"
    )
    source = shop.prepared(shop.source(tables=("public.customers",), encoding=avro, epoch=2))
    ensure_topics(settings, [schemas_topic(), *source.topic_specs])
    apply(connect, source, source=shop.engine)
    return shop, source


def write(shop: Any, *statements: Any) -> None:
    for statement in statements:
        with shop.engine.begin() as connection:
            connection.execute(statement)


def test_python_and_a_view_follow_a_table_through_a_change_of_its_schema(
    shop: Any, registry: ConfluentRegistry, records_of: Callable[..., list[TopicRecord]], environment: Any
) -> None:
    database, source = shop
    env = in_avro(environment(), registry.address)
    group = group_of(source)
    records_of(source.topics[0], count=1)
    rebuild(env, group)
    assert names(env) == {1: "Ann"}
    with open_runner(env, group) as runner:
        write(
            database,
            CUSTOMERS.insert().values(BOB),
            sa.text("ALTER TABLE customers ADD COLUMN later text"),  # records have another schema from here on
            CUSTOMERS.update().where(CUSTOMERS.c.id == 1).values(name="Ann B."),
            CUSTOMERS.delete().where(CUSTOMERS.c.id == 2),
        )
        records = records_of(source.topics[0], count=5)  # two, an update, a delete and its tombstone
        runner.catch_up()
    assert names(env) == {1: "Ann B."}
    assert all(verdict.equal for verdict in verify(env, group).values())

    decoder = ChangeDecoder(CUSTOMERS, schemas=registry.schema)
    changes = [decoder.decode(r.key, r.value, offset=r.offset) for r in sorted(records, key=lambda r: r.timestamp)]
    of_ann = [change for change in changes if change.key == {"id": 1}]
    assert [(change.op, change.after) for change in of_ann] == [
        (Op.SNAPSHOT, ANN),
        (Op.UPDATE, ANN | {"name": "Ann B."}),
    ]
    assert {change.position.epoch for change in changes if change.position} == {2}
    assert of_ann[0].position < of_ann[1].position
    ids = {int.from_bytes(r.value[1:5], "big") for r in records if r.value}
    assert len(ids) == 2


def test_without_a_registry_in_the_settings_the_remedy_is_told(shop: Any, environment: Any) -> None:
    _, source = shop

    with pytest.raises(RegistryUnreachable, match="FACTFOLD_REGISTRY__URL"):
        rebuild(environment(), group_of(source))


def group_of(source: PostgresSource) -> ProjectionGroup:
    customers = Table.from_changelog(CUSTOMERS, topic=source.topics[0], encoding="avro")

    @view(key="id", tables={"customers": customers})
    def avro_names(customers: Any) -> Any:
        return customers.select("id", "name", "credit", "seen", "born")

    return ProjectionGroup("avro", [avro_names])


def in_avro(env: Environment, registry_url: str) -> Environment:
    """The environment, whose settings name a registry."""
    known = env.log.settings.model_copy(update={"registry": RegistrySettings(url=registry_url)})
    return dataclasses.replace(env, log=KafkaLog(known))


def names(env: Environment) -> dict[int, str]:
    with env.store.transaction() as connection:
        return {row.id: row.name for row in connection.execute(sa.text("SELECT id, name FROM avro_names"))}
