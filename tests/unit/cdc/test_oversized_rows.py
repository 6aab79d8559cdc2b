"""Traces of Kafka Connect about a row that no request takes: what is said of it, and of nothing else.

The traces were recorded from a worker with exactly-once support; the lines of the calls between are left out.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import responses

from cdc.connect.failures import remedy_for, short_trace
from cdc.source.captured_columns import OversizedRow, advice_on
from tests.commands import factfold

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
