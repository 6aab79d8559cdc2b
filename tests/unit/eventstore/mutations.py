"""Inputs that are nearly right: bytes and JSON changed by a generator with a seed, one after another."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

# What no reader of JSON may take for something else, or fall over.
ODD: Sequence[Any] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, 10**400, 1.5, float("nan"), float("inf"), "", "x", "\0", "a\0b",
    "\ud800", "ü" * 300, "2026-01-01", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "../../x",
    "A" * 43 + "=", [], {}, [[]], [None], {"a": {}}, {"type": "array", "items": "null"}, {"type": "record"},
    {"personal": "string"}, "null", "bytes", "long", ["null"], "guest-1", "guest", "order.placed",
    "00000000-0000-0000-0000-000000000000",
)  # fmt: skip
NESTED = b"[" * 100_000


def changed_bytes(original: bytes, chance: random.Random) -> bytes:
    """Cut, repeat, insert, or change some bytes."""
    changed = bytearray(original)
    for _ in range(chance.choice((1, 1, 1, 2, 5, 20))):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0:
                del changed[at : at + chance.choice((1, 4, 100, len(changed)))]
            case 1:
                changed[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 2, 8))))
            case 2:
                changed[at:at] = changed[max(0, at - chance.randrange(1, 40)) : at]
            case 3 if changed:
                changed[at % len(changed)] ^= 1 << chance.randrange(8)
            case 4 if changed:
                changed[at % len(changed)] = chance.choice((0, 0x7F, 0x80, 0xFF, 0x22, 0x5B, 0x7B))
    return bytes(changed)


def changed_json(original: Any, chance: random.Random) -> Any:
    """Replace, remove, rename, double or move some parts of values of JSON."""
    changed = copy.deepcopy(original)
    for _ in range(chance.choice((1, 1, 2, 4))):
        places = list(_places(changed))
        if not places:
            return chance.choice(ODD)
        holder, key = chance.choice(places)
        match chance.randrange(5):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[str(chance.choice(ODD))] = holder.pop(key)
            case 2 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 3:
                other, place = chance.choice(places)
                holder[key] = copy.deepcopy(other[place])
            case _:
                holder[key] = copy.deepcopy(chance.choice(ODD))
    return changed


def _places(found: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(found, dict | list):
        for key in list(found) if isinstance(found, dict) else range(len(found)):
            yield found, key
            yield from _places(found[key])


def changed_lines(original: bytes, chance: random.Random) -> bytes:
    """Change lines of JSON as values, now and then their order, and rarely their bytes."""
    lines = original.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    match chance.randrange(8):
        case 0:
            return changed_bytes(original, chance)
        case 1:
            lines.insert(chance.randrange(len(lines) + 1), lines[at])
        case 2:
            lines[at], other = lines[chance.randrange(len(lines))], lines[at]
            lines[chance.randrange(len(lines))] = other
        case 3:
            del lines[at]
        case 4 if chance.random() < 0.1:
            lines[at] = b'{"kind": "event", "data": ' + NESTED + b"\n"
        case _:
            lines[at] = json.dumps(changed_json(json.loads(lines[at]), chance)).encode() + b"\n"
    return b"".join(lines)
