"""What stands for a missing value is a text of the connector's own, and a user's value is never taken for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
import responses
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from cdc import ChangeDecoder, JsonWithSchemas, PostgresSource, capture_table
from cdc.changes.change_records import uuid_of
from cdc.changes.rules import FIELD_UNAVAILABLE, UNAVAILABLE
from cdc.connect.failures import remedy_for, short_trace
from cdc.connectors.encodings import ApicurioAvro, Encoding, PlainJson
from cdc.errors import InvalidConnector, UndecodableChange, UnsupportedEncoding
from cdc.findings import Finding, Severity
from cdc.identifiers import TableName
from cdc.operating.planning import unread
from cdc.source.captured_columns import OversizedRow, advice_on
from cdc.source.catalogue import TableFacts
from cdc.source.source_health import of_table
from cdc.transforms import Custom, Flatten, InsertField, Mask, Transform, compiled
from eventstore.backends.sql.sqlite_log import SqliteLog
from tests.commands import factfold
from tests.rows import each_row
from tests.unit.cdc.declared import CHANGELOGS, custom, mysql, outbox, postgres
from tests.unit.cdc.missing_values import FORMS, OWN, TABLE

SETTING = "unavailable.value.placeholder"
KEYS = ("name", "topic_prefix", "host", "port", "database", "user")


def change(row: Mapping[str, Any], mark: str | None, *, key: str = "1") -> Any:
    body = {"op": "u", "after": {"id": key, **dict.fromkeys(FORMS), **row}, "source": {"lsn": 1, "snapshot": "false"}}
    named = body if mark is None else {**body, FIELD_UNAVAILABLE: mark}
    return ChangeDecoder(TABLE).decode(json.dumps({"id": key}).encode(), json.dumps(named).encode(), offset=0)


def test_the_uuid_of_a_text_is_java_s() -> None:
    assert uuid_of(UNAVAILABLE) == UUID("b68a35a7-17ad-35b3-af2a-ae46edb4545a")  # recorded


@pytest.mark.parametrize("column", FORMS)
def test_a_connector_s_own_text_marks_a_missing_value_and_debezium_s_does_where_a_record_names_none(column):
    form = FORMS[column][1]
    (own, _), (sent, value) = form(OWN), form(UNAVAILABLE)
    assert change({column: own}, OWN).unavailable == change({column: sent}, None).unavailable == {column}
    assert change({"text": OWN}, None).after["text"] == OWN
    if column != "doc":  # a user's value that looks like Debezium's text arrives
        found = change({column: sent}, OWN)
        assert (found.unavailable, found.after[column]) == (frozenset(), value)


def test_keys_and_items_of_arrays_are_never_missing() -> None:
    assert change({"texts": [UNAVAILABLE, "b"]}, None, key=UNAVAILABLE).after["texts"] == [UNAVAILABLE, "b"]
    found = change({"texts": [OWN, "b"]}, OWN, key=OWN)
    assert (found.key["id"], found.after["id"], found.after["texts"]) == (OWN, OWN, [OWN, "b"])
    assert found.unavailable == frozenset()


OWN_TEXT = postgres().placeholder
CONTROLLED = {"transactions": True, "notifications_topic": "shop.notes", "signal_table": "public.signals", "epoch": 1}
STATIC = "transforms.unavailable.static.value"
SAID: list[tuple[Any, dict[str, str | None]]] = [
    # All records name the text but those that are no changes.
    (postgres(**CONTROLLED), {
        "transforms": "signals,epoch,unavailable", "transforms.unavailable.static.field": FIELD_UNAVAILABLE,
        STATIC: OWN_TEXT, SETTING: OWN_TEXT, "transforms.unavailable.negate": "true",
        "predicates.unavailable.pattern": r"shop\.transaction|shop\.notes|__debezium-heartbeat.*",
    }),
    # A source whose log has every value names a text too, and is not given the setting.
    (mysql(), {STATIC: mysql().placeholder, SETTING: None}),
    # A source that no reader of ours reads names none.
    (custom(), {"transforms": None}),
    # Records name a text that was passed unchecked.
    (postgres(unchecked={SETTING: "gone"}), {SETTING: "gone", STATIC: "gone"}),
]  # fmt: skip


@each_row(("declared", "settings"), SAID)
def test_a_connector_names_the_text_of_its_missing_values(declared: Any, settings: dict[str, str | None]) -> None:
    config = declared.config()
    assert {key: config.get(key) for key in settings} == settings
    assert bool(declared.placeholder) == (STATIC in config)


def test_a_text_is_of_one_connector_and_stays_the_same() -> None:
    changed = {"port": 1} | {key: "other" for key in KEYS if key != "port"}
    texts = {postgres(**{key: changed[key]}).placeholder for key in KEYS} | {postgres().placeholder}

    assert len(texts) == len(KEYS) + 1
    assert postgres(tables=("public.b",), encoding=JsonWithSchemas()).placeholder == postgres().placeholder
    assert all(text.startswith("__factfold_unavailable_") and len(text) == 55 for text in texts)


def test_the_password_has_no_part_in_the_text() -> None:
    def with_password(password: str) -> PostgresSource:
        return postgres(password=password, allow_literal_secrets=True)

    assert with_password("one").placeholder == with_password("two").placeholder


@pytest.mark.parametrize("text", [UNAVAILABLE, "gone"])
def test_a_text_that_a_user_may_write_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedEncoding) as refused:
        postgres(extra={SETTING: text})

    assert refused.value.place == SETTING
    assert postgres(extra={SETTING: postgres().placeholder}).config() == postgres().config()


def test_nothing_overrides_what_records_say() -> None:
    with pytest.raises(InvalidConnector, match="a field of the declaration owns it"):
        postgres(unchecked={"transforms.unavailable.static.value": "x"})


def test_a_plan_says_what_an_older_connector_misread() -> None:
    added = ("transforms", "predicates", SETTING)
    before = {key: value for key, value in postgres().config().items() if not key.startswith(added)}
    (note,) = unread(before, postgres().config())

    assert f"a user's own value {UNAVAILABLE} has been taken for a missing one" in note


def test_a_row_of_a_sqlite_file_is_never_missing_a_value(tmp_path: Any) -> None:
    table = sa.Table("notes", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("text", sa.Text))
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, text=UNAVAILABLE))
    capture_table(engine, table, topic="notes")
    with engine.begin() as connection:
        connection.execute(table.update().values(text=f"{UNAVAILABLE}!"))
        connection.execute(table.update().values(text=UNAVAILABLE))
    engine.dispose()

    decoder = ChangeDecoder(table)
    with SqliteLog(engine.url.database or "") as log:
        end = log.end_offsets(["notes"])["notes"][0]
        rows = [record for page in log.records("notes", 0, end) for record in page]
    found = [decoder.decode(row[1].encode(), row[2], offset=row[0]) for row in rows]
    assert [(one.unavailable, (one.after or {})["text"]) for one in found] == [
        (frozenset(), UNAVAILABLE),
        (frozenset(), f"{UNAVAILABLE}!"),
        (frozenset(), UNAVAILABLE),
    ]


# ---- Traces of Kafka Connect about a row that no request takes: what is said of it, and of nothing else
# The traces were recorded from a worker with exactly-once support; the lines of the calls between are left out.


PRODUCER = """org.apache.kafka.common.KafkaException: Cannot execute transactional method because we are \
in an error state
\tat org.apache.kafka.clients.producer.internals.TransactionManager.maybeFailWithError(TransactionManager.java:1189)
\tat org.apache.kafka.clients.producer.KafkaProducer.doSend(KafkaProducer.java:1038)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.kafka.common.errors.RecordTooLargeException: The message is 20972179 bytes when serialized which \
is larger than 16777216, which is the value of the max.request.size configuration.
"""
BUFFER = PRODUCER.replace("16777216", "8388608").replace("max.request.size", "buffer.memory")
TOPIC = """org.apache.kafka.connect.errors.ConnectException: Failed to flush offsets and/or records for task shop-0
\tat org.apache.kafka.connect.runtime.AbstractWorkerSourceTask.execute(AbstractWorkerSourceTask.java:376)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.kafka.common.errors.RecordTooLargeException: The request included a message larger than the max \
message size the server will accept.
"""
TRACES = {"producer": PRODUCER, "buffer": BUFFER, "topic": TOPIC}
POSTGRES = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "table.include.list": r"public\.items,public\.Orders,public\.signals",
    "signal.data.collection": "public.signals",
}


def advice(trace: str, **changes: str) -> str:
    return "\n".join(advice_on(trace, POSTGRES | changes))


@pytest.mark.parametrize(
    ("trace", "row"),
    [
        (PRODUCER, OversizedRow("max.request.size", 20_972_179, 16_777_216)),
        (BUFFER, OversizedRow("buffer.memory", 20_972_179, 8_388_608)),
        (TOPIC, OversizedRow("max.message.bytes")),
        ("", None),
        ("org.postgresql.util.PSQLException: FATAL: permission denied to start WAL sender", None),
    ],
)
def test_a_trace_says_which_limit_a_record_met(trace: str, row: OversizedRow | None) -> None:
    assert OversizedRow.of(trace) == row
    assert bool(advice(trace)) == (row is not None)


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
def test_the_captured_tables_are_named_with_the_sql_that_finds_the_row(trace: str) -> None:
    told = advice(trace)
    assert "a row of one of public.items, public.Orders is" in told
    assert "signals" not in told
    assert 'FROM "public"."Orders" t ORDER BY bytes DESC LIMIT 3' in told


def test_size_and_limit_are_said_and_the_remedy_takes_the_record() -> None:
    told = advice(PRODUCER, **{"table.include.list": r"public\.items"})
    assert told.startswith(
        "a row of public.items is 20,972,179 bytes as a record, and max.request.size is 16,777,216\n"
    )
    assert (
        "remedy: raise max.request.size to 33554432 (extra={'producer.override.max.request.size': '33554432'}" in told
    )
    assert "max.message.bytes of the topic" in told


def test_of_many_tables_some_are_named_and_the_others_counted() -> None:
    told = advice(TOPIC, **{"table.include.list": ",".join(rf"public\.t{number}" for number in range(9))})
    assert "public.t4 and 4 more is larger than its topic takes" in told
    assert told.count("find it: ") == 5


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"connector.class": "mysql.MySqlConnector", "table.include.list": r"shop\.items"}, "a row of shop.items"),
        ({"connector.class": "MongoDb", "collection.include.list": r"shop\.items"}, "a row of shop.items"),
        ({"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}, "a record"),
    ],
)
def test_other_sources_are_named_without_sql_of_another_database(config: dict[str, str], named: str) -> None:
    first, remedy = advice_on(PRODUCER, config)
    assert first.startswith(f"{named} is 20,972,179 bytes")
    assert remedy.startswith("remedy: ")


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
def test_a_failure_without_its_tables_sends_to_the_status_that_names_them(trace: str) -> None:
    assert "factfold cdc status" in remedy_for(" ".join(short_trace(trace)))


def answered(trace: str) -> dict[str, Any]:
    worker = {"state": "RUNNING", "worker_id": "w:1"}
    task = {"id": 0, "state": "FAILED", "worker_id": "w:1", "trace": trace}
    return {
        "info": {"name": "shop", "type": "source", "config": POSTGRES, "tasks": []},
        "status": {"name": "shop", "connector": worker, "tasks": [task]},
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_the_status_says_so_below_the_causes_of_the_connector(as_json: bool) -> None:
    with responses.RequestsMock() as worker:
        worker.get("http://connect:8083/connectors", json={"shop": answered(PRODUCER)})
        worker.get("http://connect:8083/connectors/shop/offsets", json={"offsets": []})
        words = ["status", "--connect-url", "http://connect:8083", *(["--json"] if as_json else [])]
        told = factfold("cdc", *words, catch_exceptions=False)
    assert told.exit_code == 3
    wanted = advice_on(PRODUCER, POSTGRES)
    if as_json:
        assert json.loads(told.stdout)["advice"] == list(wanted)
    else:
        assert [line.strip() for line in told.stdout.splitlines()[-len(wanted) :]] == list(wanted)


# ---- Arrays of arrays, which Debezium sends without their values, are refused; an array of one dimension is as it came


class Mood(Enum):
    calm = "calm"


# Each with what the connector has sent for an inner array of it, in JSON with and without schemas.
SENT = [
    (sa.SmallInteger(), None),
    (sa.Integer(), None),
    (sa.BigInteger(), None),
    (sa.Float(), None),
    (sa.Double(), None),
    (sa.Numeric(10, 2), None),
    (sa.Boolean(), None),
    (sa.LargeBinary(), None),
    (sa.Date(), None),
    (sa.DateTime(), None),
    (sa.DateTime(timezone=True), None),
    (sa.Time(), None),
    (pg.OID(), None),
    (sa.Text(), "[Ljava.lang.String;@44856fa9"),
    (sa.String(9), "[Ljava.lang.String;@68c398b7"),
    (sa.Uuid(), "[Ljava.util.UUID;@7b047907"),
    (sa.Enum(Mood), "[Ljava.lang.String;@2ad17f73"),
    (pg.JSON(), "[Ljava.lang.String;@1a902007"),
    (pg.JSONB(), "[Ljava.lang.String;@7d2b7afe"),
    (pg.INET(), "[Ljava.lang.Object;@39aeec7b"),
    (pg.MACADDR(), "[Ljava.lang.Object;@58a44661"),
    (pg.INT4RANGE(), "[Ljava.lang.Object;@5c0b1ad1"),
    (pg.TSVECTOR(), "[Ljava.lang.Object;@19073ae5"),
]


def decoder(kind: Any, **changes: Any) -> ChangeDecoder:
    columns = (sa.Column("id", sa.Integer, primary_key=True), sa.Column("a", sa.ARRAY(kind, **changes)))
    return ChangeDecoder(sa.Table("it", sa.MetaData(), *columns), full_identity=True)


def decoded(kind: Any, value: Any, **changes: Any) -> Any:
    event = {"op": "c", "before": None, "after": {"id": 1, "a": value}, "source": {"lsn": 1, "snapshot": "false"}}
    found = decoder(kind, **changes).decode(b'{"id": 1}', json.dumps(event).encode(), offset=0)
    return None if found.after is None else found.after["a"]


@each_row(("kind", "inner"), SENT, ids=str)
def test_an_array_of_arrays_is_refused_with_its_column(kind: Any, inner: str | None) -> None:
    with pytest.raises(UndecodableChange, match="column 'a' of table it"):
        decoded(kind, [inner, inner])


@each_row(("kind", "inner"), SENT, ids=str)
def test_an_empty_array_and_null_are_as_they_came(kind: Any, inner: str | None) -> None:
    assert (decoded(kind, []), decoded(kind, None)) == ([], None)


@each_row("kind", [kind for kind, inner in SENT if inner is not None], ids=str)
def test_nulls_alone_are_an_array_where_inner_arrays_do_not_come_as_null(kind: Any) -> None:
    assert decoded(kind, [None, None]) == [None, None]


@each_row("kind", [kind for kind, inner in SENT if inner is None], ids=str)
def test_nulls_alone_are_an_array_where_it_is_declared_with_one_dimension(kind: Any) -> None:
    assert decoded(kind, [None, None], dimensions=1) == [None, None]


def test_a_text_like_the_name_of_a_java_class_is_itself_where_one_dimension_is_declared() -> None:
    assert decoded(sa.Text(), ["[Ljava.lang.String;@44856fa9"], dimensions=1) == ["[Ljava.lang.String;@44856fa9"]
    assert decoded(sa.Text(), ["[Ljava.lang", "a [LString;@1", None]) == ["[Ljava.lang", "a [LString;@1", None]


@each_row("dimensions", [2, 3])
@each_row(("kind", "inner"), SENT, ids=str)
def test_more_than_one_dimension_is_refused_when_it_is_declared(kind: Any, inner: str | None, dimensions: int) -> None:
    with pytest.raises(UnsupportedEncoding, match=f"an array of {dimensions} dimensions") as refused:
        decoder(kind, dimensions=dimensions)
    assert refused.value.place == "it.a"


@pytest.mark.parametrize("kind", [pg.BIT(1), pg.BIT(3), pg.BIT(3, varying=True)], ids=str)
def test_an_array_of_bits_is_refused_when_it_is_declared(kind: Any) -> None:
    with pytest.raises(UnsupportedEncoding, match=r"column it\.a has type"):
        decoder(kind)


# ---- A NULL in a nullable column that has a DEFAULT stays a NULL, or the declaration is refused


JSON = "org.apache.kafka.connect.json.JsonConverter"
CONFLUENT = "io.confluent.connect.avro.AvroConverter"
KAFKA = "org.apache.kafka.connect.transforms"
AVRO = ApicurioAvro(registry_url="http://registry:8080/apis/registry/v3")
IN_JSON: list[Encoding] = [PlainJson(), JsonWithSchemas()]
ITEMS = TableName.parse("public.items")


@each_row("encoding", IN_JSON, ids=["plain", "with schemas"])
@each_row("declare", CHANGELOGS)
def test_json_is_written_without_defaults_in_the_place_of_nulls(declare: Any, encoding: Encoding) -> None:
    config = declare(encoding=encoding).config()

    for part in ("key", "value"):
        assert config[f"{part}.converter.replace.null.with.default"] == "false"


@each_row("part", ["key", "value"])
@each_row("encoding", IN_JSON, ids=["plain", "with schemas"])
@each_row("declare", CHANGELOGS)
def test_a_setting_that_turns_defaults_on_again_is_refused(declare: Any, encoding: Encoding, part: str) -> None:
    key = f"{part}.converter.replace.null.with.default"

    with pytest.raises(UnsupportedEncoding, match="would arrive as the default") as refused:
        declare(encoding=encoding, extra={key: "TRUE"})

    assert (refused.value.place, refused.value.remedy) == (key, f"set {key}=false")
    assert declare(encoding=encoding, unchecked={key: "true"}).config()[key] == "true"


@pytest.mark.parametrize(
    ("converter", "setting", "keeps"),
    [(JSON, "replace.null.with.default", "false"), (CONFLUENT, "ignore.default.for.nullables", "true")],
)
def test_a_converter_named_by_its_class_must_be_told_to_keep_nulls(converter: str, setting: str, keeps: str) -> None:
    named = {f"{part}.converter": converter for part in ("key", "value")}
    kept = {f"{part}.converter.{setting}": keeps for part in ("key", "value")}

    with pytest.raises(UnsupportedEncoding) as refused:
        postgres(encoding=AVRO, extra=named)

    assert refused.value.remedy == f"set key.converter.{setting}={keeps}"
    assert postgres(encoding=AVRO, extra={**named, **kept}).config()["value.converter"] == converter


def of_class(class_name: str, **options: str) -> Custom:
    return Custom(name="it", class_name=class_name, options={key.replace("_", "."): v for key, v in options.items()})


@each_row(
    ("transform", "says"),
    [
        *((transform, "false") for transform in (
            Flatten(name="it"), Mask(name="it", fields=("email",)), InsertField(name="it", field="a", value="b"),
            of_class(f"{KAFKA}.Cast$Value", spec="a:int8"), of_class(f"{KAFKA}.TimestampConverter$Value"),
            of_class("io.debezium.transforms.ExtractNewRecordState"))),
        # A transform without the setting is not given it, and its own words are left as they are.
        *((of_class(name), None)
          for name in ("com.example.Seal", f"{KAFKA}.Flatten$Value", f"{KAFKA}.HoistField$Value")),
        (of_class(f"{KAFKA}.Cast$Value", replace_null_with_default="true"), "true"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_transform_keeps_nulls_where_it_can(transform: Transform, says: str | None) -> None:
    assert compiled((transform,)).get("transforms.it.replace.null.with.default") == says


def findings(connector: Any, *defaulted: str) -> list[Finding]:
    facts = TableFacts("r", True, "d", ("id",), (), True, True, False, (), (), (), (), defaulted)
    return [found for found in of_table(facts, ITEMS, connector, None) if found.severity is Severity.ERROR]


def test_avro_is_refused_for_a_table_with_a_nullable_column_that_has_a_default() -> None:
    (found,) = findings(postgres(encoding=AVRO), "seen", "note")

    assert "a NULL in seen, note of public.items would arrive as the column's DEFAULT" in found.result
    assert "PlainJson() or JsonWithSchemas()" in found.remedy
    assert 'ALTER TABLE "public"."items" ALTER "seen" DROP DEFAULT' in found.remedy


def test_a_default_is_no_matter_where_nulls_stay_or_no_column_has_one() -> None:
    kept = {f"{part}.converter.ignore.default.for.nullables": "true" for part in ("key", "value")}
    confluent = {**{f"{part}.converter": CONFLUENT for part in ("key", "value")}, **kept}

    for connector in (postgres(), postgres(encoding=JsonWithSchemas()), postgres(extra=confluent), outbox()):
        assert findings(connector, "seen") == []
    assert findings(postgres(encoding=AVRO)) == []


def test_what_was_passed_unchecked_is_refused_where_a_table_shows_the_harm() -> None:
    (found,) = findings(postgres(unchecked={"value.converter.replace.null.with.default": "true"}), "seen")

    assert "seen of public.items" in found.result


def test_a_plan_says_that_rows_of_a_running_connector_must_be_read_again() -> None:
    running = {key: value for key, value in postgres().config().items() if "replace.null" not in key}

    for before in (running, postgres(encoding=AVRO).config()):
        (note,) = unread(before, postgres().config())
        assert "has arrived as the default until now" in note
        assert "factfold cdc compare … --repair" in note
        assert "factfold cdc snapshot take …" in note


@pytest.mark.parametrize(
    ("running", "declared"), [(PlainJson(), JsonWithSchemas()), (PlainJson(), AVRO), (AVRO, AVRO)], ids=str
)
def test_no_row_must_be_read_again_where_nothing_is_mended(running: Encoding, declared: Encoding) -> None:
    assert unread(postgres(encoding=running).config(), postgres(encoding=declared).config()) == ()
    assert unread(outbox().config(), outbox().config()) == ()
