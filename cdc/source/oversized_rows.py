"""A row that no request takes: the tables that it may be of, the SQL that finds it, the setting that lets it through.

The trace of a failed task says how many bytes the record has and which limit it met. It names neither topic nor key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cdc.identifiers import quoted

_OF_PRODUCERS: Final = re.compile(
    r"The message is (\d+) bytes when serialized which is larger than (\d+), "
    r"which is the value of the ([\w.]+) configuration"
)
_OF_TOPICS: Final = "larger than the max message size the server will accept"
_POSTGRES: Final = "io.debezium.connector.postgresql.PostgresConnector"
_INCLUDED: Final = ("table.include.list", "collection.include.list")
_SIGNALS: Final = "signal.data.collection"
_MOST: Final = 5
# By its text and not by its stored size, which is compressed.
_SEARCH: Final = (
    "find it: SELECT octet_length(t::text) AS bytes, left(t::text, 60) FROM {table} t ORDER BY bytes DESC LIMIT 3"
)


@dataclass(frozen=True, slots=True)
class OversizedRow:
    """What a trace says of it: a producer's setting, with sizes in bytes; ``limit`` None where its topic refuses it."""

    setting: str
    size: int | None = None
    limit: int | None = None

    @classmethod
    def of(cls, trace: str) -> OversizedRow | None:
        """Read a task's trace; None where it failed for another reason."""
        if match := _OF_PRODUCERS.search(trace):
            return cls(match[3], int(match[1]), int(match[2]))
        return cls("max.message.bytes") if _OF_TOPICS in trace else None

    @property
    def remedy(self) -> str:
        """The setting to raise, for a connector and for a worker that lets no connector change it."""
        if self.size is None:
            return "raise max.message.bytes of the topic, then factfold cdc apply"
        enough = 1 << self.size.bit_length()
        return (
            f"raise {self.setting} to {enough} (extra={{'producer.override.{self.setting}': '{enough}'}}, or "
            f"producer.{self.setting} in a worker that refuses overrides) and max.message.bytes of the topic, then "
            "factfold cdc apply"
        )

    def message(self, tables: list[str]) -> str:
        """Say what is too large, and for what."""
        named = f"a row of {'one of ' if len(tables) > 1 else ''}{_some(tables)}" if tables else "a record"
        if self.limit is None or self.size is None:
            return f"{named} is larger than its topic takes"
        return f"{named} is {self.size:,} bytes as a record, and {self.setting} is {self.limit:,}"


def advice_on(trace: str, config: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a trace says of a row that no request takes, how to find the row, and what helps."""
    row = OversizedRow.of(trace)
    if row is None:
        return ()
    tables = tables_of(config)
    searches = _searches(tables) if config.get("connector.class") == _POSTGRES else ()
    return (row.message(tables), *searches, f"remedy: {row.remedy}")


def tables_of(config: Mapping[str, str]) -> list[str]:
    """Return the tables that a configuration captures, without the backslashes that make them patterns."""
    patterns = [one.strip() for name in _INCLUDED for one in config.get(name, "").split(",")]
    names = [re.sub(r"\\(.)", r"\1", one) for one in patterns if one]
    return [name for name in names if name != config.get(_SIGNALS)]


def _searches(tables: list[str]) -> Iterator[str]:
    for name in tables[:_MOST]:
        table = ".".join(map(quoted, name.split(".")))
        yield _SEARCH.format(table=table)


def _some(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
