"""What a dead letter holds as JSON has it, and a payload that was edited: of commands and of the console."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eventstore.errors import InvalidEventData
from eventstore.fields.plain_json import dump_plain, load_plain

if TYPE_CHECKING:
    from eventstore.deadletters.letters import Contents


def contents_as_json(contents: Contents) -> dict[str, Any]:
    """A letter and what its record holds; the payload is what an edit begins with."""
    payload = None if contents.payload is None else json.loads(dump_plain(contents.payload))
    others = {name: value for name, value in dataclasses.asdict(contents).items() if name not in ("letter", "payload")}
    return {**dataclasses.asdict(contents.letter), "payload": payload, **others}


def edited_payload(text: str, *, place: str) -> Mapping[str, Any]:
    """Read a payload that was edited as text. Raises InvalidEventData."""
    try:
        payload = load_plain(text)
    except InvalidEventData:
        payload = None
    if isinstance(payload, Mapping):
        return payload
    raise InvalidEventData(
        f"{place} holds no payload in JSON",
        remedy="edit what factfold dlq show --json has under payload",
        place=place,
    )
