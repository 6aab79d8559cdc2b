"""No input of a decoder ends in an error without a type: files, schemas, Avro, headers and records, nearly right.

A failure names the seed and the number of the input, whose chances are `random.Random(f"{SEED} {number}")`.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, MasterKeys, Metadata, Personal, SqlEventStore, event
from eventstore.erasure import PersonalData
from eventstore.errors import FactfoldError, NotFramedAvro
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder
from eventstore.kafka.arrivals import ArrivalReader
from eventstore.personal.sealing import Origin
from eventstore.schema_registry import RegisteredSchema, unknown_schema
from tests.ledger import Payment
from tests.unit.eventstore.client_records import Message
from tests.unit.eventstore.mutations import NESTED, changed_bytes, changed_json, changed_lines
from tests.vault import Vault

SEED = 20261126
MASTER = MasterKeys({"one": b"1" * 32})
# Of each of four decoders: 4,000 in `make test`, and 80,000 in `make faults`; and of files beside.
FEW, MANY = 1_000, 20_000
SIZES = [FEW, pytest.param(MANY, marks=pytest.mark.faults)]
A_FILE = 5  # an import costs as much as so many inputs of the other decoders


class Guest(Aggregate):
    @event
    class Joined:
        name: Annotated[str, Personal(erased="(erased)")]
        friend: str
        since: datetime
        likes: list[str]
        other: Annotated[int | None, Personal(subject="friend")] = None


JOINED = event_type_of(Guest.Joined)
ORIGIN = Origin("guest-1", uuid.UUID(int=7).hex)


def joined(number: int) -> Guest.Joined:
    since = datetime(2026, 1, 2, tzinfo=UTC)
    return Guest.Joined(name=f"Ada {number}", friend="8", since=since, likes=["tea"], other=number)


def try_all(size: int, attempt: Callable[[random.Random], object]) -> int:
    """Attempt so many inputs, each with chances of its own; returns how many were refused."""
    refused = 0
    for number in range(size):
        try:
            attempt(random.Random(f"{SEED} {number}"))
        except FactfoldError:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"input {number} of seed {SEED}: {type(error).__name__}") from error
    return refused


@pytest.fixture
def keys() -> Vault:
    return Vault()


@pytest.fixture
def payload(keys: Vault) -> bytes:
    return PersonalData(keys).sealer({"1", "8"})(JOINED, joined(1), ORIGIN)


@pytest.mark.parametrize("size", SIZES)
def test_avro_bodies_and_sealed_values(keys: Vault, payload: bytes, size: int) -> None:
    known = {JOINED.schema_id: JOINED.registered}

    def lookup(schema_id: int) -> RegisteredSchema:
        if schema_id not in known:
            raise unknown_schema(schema_id, "here")
        return known[schema_id]

    decoder = AvroDecoder(lookup)

    def attempt(chance: random.Random) -> None:
        schema, values = decoder.decode(changed_bytes(payload, chance))
        (shown,) = PersonalData(keys).disclose([(schema, values, ORIGIN)])
        JOINED.events(schema.version, shown)

    assert size // 2 < try_all(size, attempt) <= size


@pytest.mark.parametrize("size", SIZES)
def test_schemas_and_what_is_read_by_them(keys: Vault, payload: bytes, size: int) -> None:
    original = JOINED.registered.to_json()

    def attempt(chance: random.Random) -> None:
        if chance.random() < 0.3:
            text = changed_bytes(original, chance)
        else:
            text = json.dumps(changed_json(json.loads(original), chance)).encode()
        schema = RegisteredSchema.from_json(text)
        framed = b"\0" + schema.id.to_bytes(4, "big") + payload[5:]
        found, values = AvroDecoder({schema.id: schema}.__getitem__).decode(framed)
        PersonalData(keys).disclose([(found, values, ORIGIN)])

    assert size // 2 < try_all(size, attempt) < size
    for text in (NESTED, b'{"id": 1, "name": "a.b", "schema": ' + NESTED, b"\xff", b"null", b"[]", b'"x"'):
        with pytest.raises(FactfoldError):
            RegisteredSchema.from_json(text)


LAUGHS = [
    {"type": "record", "name": f"r{n}", "fields": [{"name": f, "type": f"r{n + 1}"} for f in "ab"]} for n in range(40)
]


def laughing() -> Any:
    """A record of two records of two records …: some 2^40 values of no bytes."""
    inner: Any = {"type": "record", "name": "r40", "fields": []}
    for outer in reversed(LAUGHS):
        inner = {**outer, "fields": [{"name": "a", "type": inner}, {"name": "b", "type": inner["name"]}]}
    return inner


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ({"type": "array", "items": "null"}, "an array whose items take no bytes"),
        (
            {"type": "array", "items": {"type": "record", "name": "n", "fields": []}},
            "an array whose items take no bytes",
        ),
        ({"type": "array", "items": {"type": "fixed", "name": "n", "size": 0}}, "an array whose items take no bytes"),
        ({"type": "record", "name": "n", "fields": [{"name": "n", "type": "n"}]}, "a record within itself"),
        ({"type": "record", "name": "n", "fields": [{"name": "n", "type": ["null", "n"]}]}, "a record within itself"),
        (laughing(), "more than 100,000 types"),
    ],
)
def test_a_schema_by_which_few_bytes_become_endless_values_is_refused(kind: Any, why: str) -> None:
    schema = RegisteredSchema(
        7, "a.b", {"type": "record", "namespace": "a", "name": "b", "fields": [{"name": "x", "type": kind}]}
    )
    with pytest.raises(NotFramedAvro, match=why):
        AvroDecoder({7: schema}.__getitem__).decode(b"\0\0\0\0\7" + b"\xfe" * 9 + b"\1")


HEADERS: dict[str, bytes] = {
    "ce_id": str(uuid.UUID(int=7)).encode(), "ce_type": JOINED.name.encode(), "ce_source": b"/club",
    "ce_subject": b"guest-1", "ce_time": b"2026-01-02T03:04:05.000000Z", "ce_streamversion": b"0", "ce_position": b"1",
    "ce_correlationid": b"c", "traceparent": b"t",
}  # fmt: skip


def changed_headers(chance: random.Random) -> list[tuple[str, bytes | None]]:
    found: list[tuple[str, bytes | None]] = []
    for name, value in HEADERS.items():
        match chance.randrange(12):
            case 0:
                continue
            case 1:
                found.append((name, None))
            case 2:
                found.append((name, changed_bytes(value, chance)))
            case 3:
                odd = (b"", b"\xff", b"9" * 5_000, b"-1", b"2026-01-01", b"0001-01-01T00:00:00+23:59", b"\0")
                found.append((name, chance.choice(odd)))
            case _:
                found.append((name, value))
    return found


@pytest.mark.parametrize("size", SIZES)
def test_records_of_a_subscription(keys: Vault, payload: bytes, size: int) -> None:
    declared = SimpleNamespace(source=None, signature=SimpleNamespace(types=None))
    schemas = SimpleNamespace(schema={JOINED.schema_id: JOINED.registered}.__getitem__)
    reader = ArrivalReader(declared, schemas, PersonalData(keys))  # type: ignore[arg-type]
    read = 0

    def attempt(chance: random.Random) -> None:
        nonlocal read
        value = chance.choice((payload, payload, None, changed_bytes(payload, chance)))
        headers = chance.choice((changed_headers(chance), list(HEADERS.items()), None))
        record: Any = Message(value, headers, topic="guest")
        (arrival,) = reader.opened([reader.read(record, "guest", again=chance.random() < 0.5)])
        if arrival.problem is not None:
            assert isinstance(arrival.problem, FactfoldError)
        elif arrival.schema is not None:
            read += 1
            arrival.recorded()

    try_all(size, attempt)
    assert 0 < read < size


@pytest.fixture(params=["jsonl", "parquet"])
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with SqlEventStore(f"sqlite:///{tmp_path}/source.db", keys=MASTER) as store:
        store.create_tables()
        store.declare_category("payment", partitions=3, topic="club.payments")
        metadata = Metadata(correlation_id="c", causation_id="d")
        for number in range(3):
            store.append(f"guest-{number}", [joined(number), joined(0)], expected=ANY, metadata=metadata)
        store.append("payment-1", [Payment.Received(amount=4)], expected=ANY)
        store.append("payment-2", [Payment.Received(amount=4)], expected=ANY)
        store.archive_stream("payment-1", expected=0)
        store.delete_stream("payment-2", expected=0)
        store.erase("2")
        path = tmp_path / f"club.{request.param}"
        store.export_file(path, keys=True)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Iterator[SqlEventStore]:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    sa.event.listen(engine, "connect", lambda driver, _: driver.execute("pragma synchronous = off"))
    with SqlEventStore(engine, keys=MASTER) as store:
        store.create_tables()
        yield store
    engine.dispose()


def counts(store: SqlEventStore) -> list[int]:
    with store.engine.connect() as database:
        tables = store.tables.metadata.sorted_tables
        return [database.scalar(sa.select(sa.func.count()).select_from(table)) or 0 for table in tables]


@pytest.mark.parametrize("size", [FEW // A_FILE, pytest.param(MANY // A_FILE, marks=pytest.mark.faults)])
def test_files_that_are_imported(exported: Path, target: SqlEventStore, tmp_path: Path, size: int) -> None:
    original, path = exported.read_bytes(), tmp_path / f"changed{exported.suffix}"
    change = changed_lines if exported.suffix == ".jsonl" else changed_bytes
    before = counts(target)

    def attempt(chance: random.Random) -> None:
        nonlocal before
        path.write_bytes(change(original, chance))
        try:
            target.import_file(path, keys=chance.random() < 0.7, erasures=True, topics=True)
        except FactfoldError:
            assert counts(target) == before, "something of a refused file was applied"
            raise
        before = counts(target)

    assert size // 4 < try_all(size, attempt) <= size
    for nested in (NESTED, b'{"kind": "export", "format": 1}\n{"kind": "event", "data": ' + NESTED):
        path.write_bytes(nested)
        with pytest.raises(FactfoldError):
            target.import_file(path)
