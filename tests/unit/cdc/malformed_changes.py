"""Records that are no change of a row, by what is wrong with them, in each encoding that can hold them.

Python's decoder and Spark set all of them aside, and none of `WHOLE`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.unit.cdc.schema_changes import ITEMS, Record, framed, registered

__all__ = ["ITEMS", "MALFORMED", "WHOLE", "registered", "written"]

ROW = {"id": 1, "name": "Ann", "tier": None, "rate": "1.50"}
SOURCE = {"lsn": 7, "snapshot": "false", "ts_ms": 1}
CHANGE = {"op": "u", "before": None, "after": ROW, "source": SOURCE}
DELETION = {"op": "d", "before": {"id": 1}, "after": None, "source": SOURCE}
READ = {"snapshot": "incremental", "ts_ms": 1}
KEY = {"id": 1}
NO_OBJECTS: dict[str, Any] = {
    "a text": "x",
    "no text": "",
    "a number": 5,
    "true": True,
    "a list": [],
    "a row in a list": [ROW],
}
NO_NUMBERS: dict[str, Any] = {
    "a text": "7",
    "a fraction": 7.0,
    "true": True,
    "a list": [7],
    "an object": {},
    "too great": 1 << 63,
}


def without(change: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in change.items() if name not in names}


def _source(**parts: Any) -> dict[str, Any]:
    return CHANGE | {"source": SOURCE | parts}


# What stands in place of the change event: values of JSON.
EVENTS: dict[str, Any] = {
    "no member": {},
    "null": None,
    **{f"{what}": value for what, value in NO_OBJECTS.items()},
    "a change in a list": [CHANGE],
    "after is null": CHANGE | {"after": None},
    "after is missing": without(CHANGE, "after"),
    "after of an inserted row is null": CHANGE | {"op": "c", "after": None},
    "after of a row that was read is missing": without(CHANGE | {"op": "r"}, "after"),
    "a row behind its deletion": DELETION | {"after": ROW},
    **{f"after is {what}": CHANGE | {"after": value} for what, value in NO_OBJECTS.items()},
    **{f"after of a deletion is {what}": DELETION | {"after": value} for what, value in NO_OBJECTS.items()},
    **{f"before is {what}": CHANGE | {"before": value} for what, value in NO_OBJECTS.items()},
    **{f"before of a deletion is {what}": DELETION | {"before": value} for what, value in NO_OBJECTS.items()},
    "op is missing": without(CHANGE, "op"),
    **{f"op is {what}": CHANGE | {"op": value} for what, value in {"null": None, "another": "x", **NO_OBJECTS}.items()},
    "source is missing": without(CHANGE, "source"),
    **{f"source is {what}": CHANGE | {"source": value} for what, value in {"null": None, **NO_OBJECTS}.items()},
    "no position": CHANGE | {"source": {}},
    **{f"the position is {what}": _source(lsn=value) for what, value in NO_NUMBERS.items()},
    **{f"the time is {what}": _source(ts_ms=value) for what, value in NO_NUMBERS.items()},
    **{f"the epoch is {what}": CHANGE | {"factfold_epoch": value}
       for what, value in {**without(NO_NUMBERS, "a text"), "a word": "second", "no text": ""}.items()},
    **{f"a row that was read is placed by {what}": CHANGE | {"op": "r", "source": {"snapshot": "true"} | value}
       for what, value in {"nothing": {}, "null": {"sequence": None}, "a word": {"sequence": '[null,"x"]'},
                           "one number": {"sequence": '["7"]'}, "no JSON": {"sequence": "7,"},
                           "a fraction": {"sequence": "[null,1.5]"}}.items()},
}  # fmt: skip
# What stands in place of the record's text: no JSON, or more than one value of it.
_TEXT = json.dumps(CHANGE)
TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "blanks": b"  ",
    "cut off": _TEXT[:-1].encode(),
    "a word behind it": f"{_TEXT} x".encode(),
    "two changes": f"{_TEXT}{_TEXT}".encode(),
    "single quotes": _TEXT.replace('"', "'").encode(),
    "UTF-16": _TEXT.encode("utf-16"),
    "a byte order mark": _TEXT.encode("utf-8-sig"),
    "Latin-1": _TEXT.replace("Ann", "Zoë").encode("latin-1"),
    "brackets": b"[" * 10_000,
}
# What stands in place of the key.
KEYS: dict[str, Any] = {
    "no column": {},
    "null in the key": {"id": None},
    "a number for a key": 1,
    "a list for a key": [KEY],
    "a list in the key": {"id": [1]},
    "an object in the key": {"id": {"id": 1}},
    "true in the key": {"id": True},
}
WHOLE: dict[str, Any] = {
    "an update": CHANGE,
    "an update with the row before": CHANGE | {"before": ROW},
    "an update without a place for the row before": without(CHANGE, "before"),
    "an insert": CHANGE | {"op": "c"},
    "a deletion": DELETION,
    "a deletion with the whole row": DELETION | {"before": ROW},
    "a deletion without a row before": DELETION | {"before": None},
    "a deletion without `after`": without(DELETION, "after", "before"),
    "of no time": CHANGE | {"source": without(SOURCE, "ts_ms")},
    "an epoch in a text": CHANGE | {"factfold_epoch": "2"},
    "an epoch": CHANGE | {"factfold_epoch": 2},
    "a row that was read beside the stream": CHANGE | {"op": "r", "source": READ | {"sequence": '[null,"7"]'}},
    "a row that was read before the stream": CHANGE | {"op": "r", "source": READ | {"sequence": "[null,null]"}},
}  # fmt: skip
AVRO_SOURCE = {"lsn": ["null", "long"], "snapshot": "string"}
IN_AVRO: dict[str, Any] = {
    what: EVENTS[what]
    for what in ("after is null", "after of an inserted row is null", "op is another", "a row behind its deletion",
                 "no position", "op is null")
}  # fmt: skip


def _schema(name: str, /, **fields: Any) -> dict[str, Any]:
    described = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "connect.name": f"malformed.{name}", "fields": described}


_ID = {"field": "id", "type": "int32"}
_FIELDS = [_ID, *({"field": name, "type": "string"} for name in ROW if name != "id")]
_CONNECT = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": _FIELDS}]}
_AVRO_KEY = _schema("Key", id="int")
_AVRO = _schema(
    "Envelope",
    op=["null", "string"],
    after=["null", _schema("Value", id="int", **{name: ["null", "string"] for name in ROW if name != "id"})],
    source=_schema("Source", **AVRO_SOURCE),
)


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


def _with_schema(payload: Any) -> bytes:
    return _json({"schema": _CONNECT, "payload": payload})


_KEY_SCHEMA = {"type": "struct", "fields": [_ID]}


def _key_with_schema(payload: Any) -> bytes:
    return _json({"schema": _KEY_SCHEMA, "payload": payload})


def _in_avro(event: Any) -> Record:
    source = {"lsn": None, "snapshot": "false", **event["source"]}
    return framed(_AVRO_KEY, KEY), framed(_AVRO, {"before": None, **event, "source": source})


def _of_json() -> Iterator[tuple[str, Record]]:
    yield from ((what, (_json(KEY), _json(event))) for what, event in EVENTS.items())
    yield from ((what, (_json(KEY), text)) for what, text in TEXTS.items())
    yield from ((what, (_json(key), _json(CHANGE))) for what, key in KEYS.items())


def _of_schemas() -> Iterator[tuple[str, Record]]:
    yield from ((what, (_key_with_schema(KEY), _with_schema(event))) for what, event in EVENTS.items())
    yield from ((what, (_key_with_schema(key), _with_schema(CHANGE))) for what, key in KEYS.items())
    for what, body in {
        "no payload": {"schema": _CONNECT},
        "a number for a schema": {"schema": 5, "payload": CHANGE},
    }.items():
        yield what, (_key_with_schema(KEY), _json(body))


MALFORMED: dict[str, dict[str, Record]] = {
    "json": dict(_of_json()),
    "json-with-schemas": dict(_of_schemas()),
    "avro": {
        **{what: _in_avro(event) for what, event in IN_AVRO.items()},
        "Avro of a text": (framed(_AVRO_KEY, KEY), framed({"type": "string", "connect.name": "x"}, "x")),
    },
}


def written(encoding: str) -> dict[str, Record]:
    """The records of `WHOLE` in an encoding; in Avro those that its schema has a place for."""
    if encoding == "json":
        return {what: (_json(KEY), _json(event)) for what, event in WHOLE.items()}
    if encoding == "json-with-schemas":
        return {what: (_key_with_schema(KEY), _with_schema(event)) for what, event in WHOLE.items()}
    return {what: _in_avro(WHOLE[what]) for what in ("an update", "an insert", "a deletion")}
