"""Records what the real connector sends: `python -m tests.recordings.record` writes `postgres.json.gz` anew.

On a stack of its own: one database, and one connector for each encoding, which all stream the same changes. The file
has, for each encoding, the records of each topic in their order, and the Avro schemas by their ids.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka.schema_registry import SchemaRegistryClient
from sqlalchemy import Engine, create_engine

from cdc import (
    ApicurioAvro,
    ConnectClient,
    JsonWithSchemas,
    PlainJson,
    PostgresSource,
    apply_connector,
    prepare_source,
    write_secrets,
)
from cdc.connectors.encodings import Encoding
from eventstore.errors import TopicMissing
from eventstore.kafka.consumer import read_range
from eventstore.settings import Settings
from eventstore.topics import TopicRecord
from factfold.stack import LocalStack, StackInfo
from tests.recordings import every_type, traps
from tests.waiting import wait_until

OUTPUT: Final = Path(__file__).with_name("postgres.json.gz")
TABLES: Final = (f"public.{every_type.TABLE.name}", *traps.TABLES)
_PASSWORD: Final = "recorded"


def record() -> None:
    """Record everything; takes about a minute and a half."""
    with LocalStack("recorder", ephemeral=True) as stack:
        stack.start("registry")
        info = stack.info
        engine = create_engine(info.postgres.url())
        _run(engine, [*every_type.create_statements(), *traps.CREATE, *every_type.insert_statements(1)])
        sources = {name: _source(info, engine, name, *how) for name, how in encodings(info).items()}
        _start(info, engine, sources)
        for transaction in [*([s] for s in every_type.insert_statements(11)), *traps.CHANGES]:
            _run(engine, transaction)
        wait_until(lambda: all(_ended(info, source) for source in sources.values()), within=120)
        recorded = {name: _recorded(info, source) for name, source in sources.items()}
        engine.dispose()
    OUTPUT.write_bytes(gzip.compress(json.dumps(recorded, ensure_ascii=False, indent=0).encode(), mtime=0))


def encodings(info: StackInfo) -> dict[str, tuple[Encoding, dict[str, str]]]:
    """How each connector writes, by the name of its encoding, with settings that a declaration would refuse."""
    url = info.registry_url.replace("/apis/ccompat/v7", "/apis/registry/v3")
    numeric = {"interval.handling.mode": "numeric"}
    return {
        "plain": (PlainJson(), {}),
        "schemas-adaptive": (JsonWithSchemas(times="adaptive", decimals="precise"), numeric),
        "schemas-adaptive-micros": (
            JsonWithSchemas(times="adaptive_time_microseconds", decimals="double"),
            {**numeric, "binary.handling.mode": "base64"},
        ),
        "schemas-microseconds": (
            JsonWithSchemas(times="microseconds", decimals="precise"),
            {"binary.handling.mode": "base64-url-safe"},
        ),
        "schemas-nanoseconds": (
            JsonWithSchemas(),
            {"time.precision.mode": "nanoseconds", "binary.handling.mode": "hex"},
        ),
        "schemas-connect": (JsonWithSchemas(times="connect", decimals="precise"), numeric),
        "schemas-isostring": (JsonWithSchemas(), {}),
        "avro-adaptive": (ApicurioAvro(registry_url=url, times="adaptive", decimals="precise"), numeric),
        "avro-isostring": (ApicurioAvro(registry_url=url), {}),
        "avro-connect": (ApicurioAvro(registry_url=url, times="connect", decimals="double"), numeric),
    }


def _source(
    info: StackInfo, engine: Engine, name: str, encoding: Encoding, unchecked: Mapping[str, str]
) -> PostgresSource:
    postgres = info.postgres
    reference = write_secrets(info.secrets_dir, "recorder", values={"password": _PASSWORD})["password"]
    return PostgresSource(
        name=name,
        host=postgres.host,
        port=postgres.port,
        database=str(engine.url.database),
        user="recorder",
        password=reference,
        topic_prefix=name,
        publication="recorder",
        tables=TABLES,
        partitions=1,
        # Not compacted, so that the record of a truncation, which has no key, is taken.
        history=TABLES,
        encoding=encoding,
        signal_table=traps.SIGNALS,
        extra={"skipped.operations": "none"},
        unchecked=unchecked,
    )


def _start(info: StackInfo, engine: Engine, sources: Mapping[str, PostgresSource]) -> None:
    prepare_source(engine, next(iter(sources.values())), password=_PASSWORD)
    _run(engine, traps.PREPARE)
    with ConnectClient(info.connect_url) as client:
        for source in sources.values():
            apply_connector(client, source, source=engine)


def _run(engine: Engine, statements: Iterable[str]) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def _records(info: StackInfo, topic: str) -> list[TopicRecord]:
    try:
        return list(read_range(Settings.for_broker(info.bootstrap_servers), topic))
    except TopicMissing:
        return []


def _ended(info: StackInfo, source: PostgresSource) -> bool:
    """Whether the last message is there, and the incremental snapshot's row after it."""
    messages = _records(info, f"{source.topic_prefix}.message")
    rows = _records(info, source.topic(traps.WHOLE))
    again = [r for r in rows if r.value is not None and b"incremental" in r.value]
    return len(messages) >= traps.MESSAGES and len(again) >= traps.ROWS_TAKEN_AGAIN


def _recorded(info: StackInfo, source: PostgresSource) -> dict[str, Any]:
    topics = {
        t.removeprefix(f"{source.topic_prefix}."): _records(info, t)
        for t in (*source.topics, f"{source.topic_prefix}.message")
    }
    records = [r for found in topics.values() for r in found]
    ids = {int.from_bytes(data[1:5], "big") for r in records for data in (r.key, r.value) if data and data[0] == 0}
    client = SchemaRegistryClient({"url": info.registry_url})
    return {
        "schemas": {str(i): json.loads(client.get_schema(i).schema_str or "") for i in sorted(ids)},
        "topics": {topic: [[_text(r.key), _text(r.value)] for r in found] for topic, found in topics.items()},
    }


def _text(data: bytes | None) -> str | None:
    """JSON as it is; Avro, which starts with a zero byte, in base64."""
    if data is None:
        return None
    return base64.b64encode(data).decode() if data[0] == 0 else data.decode()


if __name__ == "__main__":
    record()
