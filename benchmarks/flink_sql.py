"""Flink SQL, a peer of the comparison: its jars, its dialect, the topics as its tables, and the answers it has."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.peer import HERE, fetched
from eventstore.closing import Closing
from factfold.stack.java import require_java
from projections.declaring.columns import ColumnType, Kind
from projections.declaring.tables import ChangelogTable
from tests.conformance.sql_suites import Answer, first_difference, of_duckdb

VERSION, PARALLELISM = "2.2.1", 2
WITHIN, QUIET = 20.0, 1.0  # seconds for an answer, and seconds without a row after which an answer is whole
_KINDS: Mapping[str, Kind] = {
    "BIGINT": "long", "INT": "int", "DOUBLE": "double", "TIMESTAMP": "timestamp", "DATE": "date",
}  # fmt: skip
_ROW_KINDS = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}
_RESERVED = re.compile(r"(?<!`)\b(dateTime|value|rank)\b(?!`)")
_TYPES = {"long": "BIGINT", "int": "INT", "string": "STRING", "date": "STRING", "timestamp": "TIMESTAMP_LTZ(6)"}
# The connectors' dates end with Z, and their times are of UTC.
_READ = {"date": "CAST(SUBSTRING({0} FROM 1 FOR 10) AS DATE) AS {0}", "timestamp": "CAST({0} AS TIMESTAMP(6)) AS {0}"}


def _grouped(window: str, before: str = "MOD(SECOND({0}), 10)") -> Mapping[str, str]:
    """A window as the computed begin of an interval, so many seconds before the time of a row."""
    column, _, _ = window.partition(",")
    begin = f"TIMESTAMPADD(SECOND, -({before.format(column)}), FLOOR({column} TO SECOND))"
    end = f"TIMESTAMPADD(SECOND, 10, {begin})"
    return {f"window({window})": begin, "window.start": begin, "window.end": end}


# Flink's own windows have results once a watermark passes, and drop what comes later. An ordinary group follows each
# change.
DIALECT: Mapping[str, Mapping[str, str]] = {
    "tpch_q01": {"date '1998-12-01' - interval '1200' day": "TIMESTAMPADD(DAY, -1200, DATE '1998-12-01')"},
    "nexmark_q04": {"AVG(Q.final)": "AVG(CAST(Q.final AS DOUBLE))"},
    "nexmark_q05": {
        "FROM bid": "FROM bid CROSS JOIN (VALUES (0), (2), (4), (6), (8)) AS hops (hop)",
        **_grouped("dateTime, '10 seconds', '2 seconds'", "MOD(SECOND({0}), 2) + hop"),
    },
    "nexmark_q07": _grouped("dateTime, '10 seconds'"),
    "nexmark_q08": _grouped("dateTime, '10 seconds'"),
    "nexmark_q11": {
        "dateTime - lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) <= INTERVAL '10 seconds'": (
            "dateTime - INTERVAL '10' SECOND <= lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime)"
        ),
        "'10 seconds'": "'10' SECOND",
    },
    "nexmark_q12": _grouped("B.dateTime, '10 seconds'"),
    "nexmark_q14": {"length(": "CHAR_LENGTH("},
    "nexmark_q17": {"avg(price)": "avg(CAST(price AS DOUBLE))"},
    "nexmark_q21": {"split_part(url, 'channel_id=', 2)": "SPLIT_INDEX(url, 'channel_id=', 1)"},
    "nexmark_q22": {f"split_part(url, '/', {n})": f"SPLIT_INDEX(url, '/', {n - 1})" for n in (4, 5, 6)},
}
BY_DUCKDB = {"nexmark_q11"}  # sessions that a sum over lag() numbers


def of_flink(name: str, text: str) -> str:
    """The query in Flink's SQL. An order without a limit is left out: a view has none."""
    text = of_duckdb(name, text) if name in BY_DUCKDB else text
    for ours, other in DIALECT.get(name, {}).items():
        text = text.replace(ours, other)
    body, ordered, order = text.rpartition("\norder by")
    if ordered and "limit" not in order:
        text = body
    return _RESERVED.sub(r"`\1`", " ".join(text.split()))


def definitions(name: str, table: ChangelogTable, servers: str) -> Iterator[str]:
    """A topic in the form of Debezium's connectors as a table, and its columns of the types that the queries mean."""
    columns = {f"`{table.record_name(c)}`": kind for c, kind in table.columns.items()}
    declared = ", ".join(f"{column} {_type(kind)}" for column, kind in columns.items())
    key = ", ".join(f"`{table.record_name(c)}`" for c in table.key)
    options = {
        "connector": "kafka",
        "topic": table.topic,
        "properties.bootstrap.servers": servers,
        "scan.startup.mode": "earliest-offset",
        "format": "debezium-json",
        "debezium-json.timestamp-format.standard": "ISO-8601",
    }
    chosen = ", ".join(f"'{option}' = '{value}'" for option, value in options.items())
    yield f"CREATE TEMPORARY TABLE {name}_topic ({declared}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ({chosen})"
    read = ", ".join(_READ.get(kind.kind, "{0}").format(column) for column, kind in columns.items())
    yield f"CREATE TEMPORARY VIEW {name} AS SELECT {read} FROM {name}_topic"  # noqa: S608


def _type(column: ColumnType) -> str:
    return _TYPES.get(column.kind) or f"DECIMAL({column.precision}, {column.scale})"


class Refused(Exception):
    """Flink has no answer: it refuses the text, or the job fails."""


class Changelog:
    """The rows that a query has by now, a bag, from what the cluster's process prints."""

    def __init__(self) -> None:
        self._bag: Counter[tuple[str | None, ...]] = Counter()
        self._kinds: dict[str, ColumnType] = {}

    def hear(self, said: Mapping[str, Any]) -> float | None:
        """Apply a row, and return its time. Raises Refused where there are no rows."""
        if trouble := said.get("refused") or said.get("failed"):
            raise Refused(f"{'refused' if 'refused' in said else 'failed'}: {trouble}")
        if "columns" in said:
            self._kinds = {name: _kind(kind) for name, kind in said["columns"].items()}
            return None
        self._bag[tuple(said["row"])] += _ROW_KINDS[said["kind"]]
        return float(said["at"]) / 1000

    def difference(self, right: Answer) -> str | None:
        """Where the rows differ from an answer."""
        if not self._kinds:
            return "not started"
        if any(count < 0 for count in self._bag.values()):
            return "a row is taken back that never came"
        found = [self._row(row) for row in self._bag.elements()]
        return first_difference(self._kinds, found, [dict(zip(self._kinds, row, strict=True)) for row in right[1]])

    def _row(self, texts: Sequence[str | None]) -> dict[str, Any]:
        pairs = zip(self._kinds.items(), texts, strict=True)
        return {name: None if text is None else _value(kind, text) for (name, kind), text in pairs}


class FlinkSql(Closing):
    """A cluster in a process of its own, with one query at a time."""

    name = f"Flink SQL {VERSION}"

    def __init__(self, servers: str, more_jars: Sequence[str] = ()) -> None:
        self._servers = servers
        jars = [
            jar
            for listed in ("flink-jars.txt", *more_jars)
            for jar in fetched(listed.removesuffix("-jars.txt"), (HERE / listed).read_text().split())
        ]
        command = [str(require_java().executable), "-Xmx2g", "-cp", _compiled(jars), "FlinkQueries", str(PARALLELISM)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, text=True, **pipes)
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._changelog = Changelog()

    def start(self, text: str, tables: Mapping[str, ChangelogTable]) -> None:
        """Run a query over topics from their beginnings."""
        for name, table in tables.items():
            self.tell(*definitions(name, table, self._servers))
        self.tell(text)

    def insert(self, text: str) -> float:
        """Start to write a query's rows into a table, and return the time. Raises Refused."""
        self.tell(text)
        if "inserting" not in (said := self._said.get(timeout=60)):
            raise Refused(str(said))
        return time.perf_counter()

    def stop(self) -> None:
        """End the query."""
        self.tell("stop")
        while "stopped" not in self._said.get(timeout=60):
            pass
        self._changelog = Changelog()

    def answered(self, right: Answer) -> float | None:
        """The time of the row that made the answer right for good, or None if no row came. Raises Refused."""
        begun, last, wrong = time.monotonic(), None, "rows without an end"
        while time.monotonic() - begun < WITHIN:
            try:
                last = self._changelog.hear(self._said.get(timeout=QUIET)) or last
            except queue.Empty:
                if (wrong := self._changelog.difference(right)) is None:
                    return last
        raise Refused(f"wrong: {wrong}")

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None  # noqa: S101 - it is a pipe
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        finally:
            self.process.kill()  # only if it still runs

    def tell(self, *lines: str) -> None:
        """Hand it lines: statements, or a query."""
        assert self.process.stdin is not None  # noqa: S101 - it is a pipe
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            self._said.put(json.loads(line))


def _compiled(jars: Sequence[Path]) -> str:
    """The class path with the program: the cluster loads its classes by name, which no source file has."""
    folder, path = jars[0].parent.parent / "classes", os.pathsep.join(map(str, jars))
    compiler = [str(require_java().executable), "--module", "jdk.compiler/com.sun.tools.javac.Main"]
    subprocess.run([*compiler, "-d", str(folder), "-cp", path, str(HERE / "FlinkQueries.java")], check=True)
    return f"{folder}{os.pathsep}{path}"


def _kind(declared: str) -> ColumnType:
    """The kind that a type of Flink is compared as."""
    name, *digits = re.findall(r"\w+", declared.removesuffix(" NOT NULL"))
    if name == "DECIMAL":
        return ColumnType("decimal", *map(int, digits))
    return ColumnType(_KINDS.get(name, "string"))


def _value(kind: ColumnType, text: str) -> Any:
    read: Mapping[str, Any] = {
        "decimal": Decimal, "long": int, "int": int, "double": float, "date": date.fromisoformat,
        "timestamp": datetime.fromisoformat,
    }  # fmt: skip
    return read.get(kind.kind, str)(text)
