"""Java's long stories in short: the causes of a failed task, and what to do about the known ones."""

from __future__ import annotations

import re
from typing import Final

MAX_CAUSES: Final = 5
MAX_LINE: Final = 300

_CAUSED_BY = "Caused by: "
_CLASS = re.compile(r"^(?:[a-z_][\w$]*\.)+([A-Z][\w$]*)(?=: |$)")
_INNERMOST = re.compile(r"\s*(?:\[[^\[\]{}]*\]|\{[^\[\]{}]*\})")
_INVALID_HEADING = re.compile(r"^Connector configuration is invalid and contains the following \d+ error\(s\):\s*")
_INVALID_ENDING = re.compile(r"\s*You can also find the above list of errors at the endpoint .*$", re.DOTALL)

LOST_SLOT: Final = (
    "the slot lost its place and changes with it: delete the connector with its offsets "
    "(factfold cdc delete --forget) and its changelog topics, apply it again for a new initial snapshot, "
    "and rebuild the views that read them: in the old topics the snapshot's rows would lose to older changes"
)
ANOTHER_LIFE: Final = (
    "declare the connector with `epoch` one higher, forget its offsets (factfold cdc offsets reset), drop its slot if "
    "there is one, apply: a new initial snapshot wins over all older changes. Rows that are gone meanwhile stay in the "
    "topics: to lose them, delete the changelog topics too, and rebuild the views"
)
_TOPIC: Final = "create the topic with the partition count of its category: cdc.topics.prepare_topics does"
# Words of a cause → what to do. The first match counts.
_REMEDIES: Final = (
    ("password authentication failed", "check the user, and the password behind the connector's reference"),
    ("access denied for user", "check the user, and the password behind the connector's reference"),
    ("no pg_hba.conf entry", "let the role connect from the worker's address in pg_hba.conf"),
    ('database "', "check the database name"),
    ('role "', "create the role: cdc.grants.prepare_source does"),
    ("connection refused", "start the database, or check its host and port as the worker sees them"),
    ("connection to", "start the database, or check its host and port as the worker sees them"),
    ("connection attempt failed", "start the database, or check its host and port as the worker sees them"),
    ("unknownhostexception", "check the database host as the worker sees it"),
    ("no longer available on the server", LOST_SLOT),
    ("slot is ahead", LOST_SLOT),
    ("publication", "create the publication as the tables' owner: cdc.grants.prepare_source does"),
    ("must be owner", "run it as the tables' owner or a superuser"),
    ("permission denied to create role", "run it as a superuser: only one makes roles with REPLICATION"),
    ("already active", "stop the other connector on this slot, or choose another slot"),
    ("all replication slots are in use", "raise max_replication_slots, or drop slots nobody reads"),
    ("wal_level", "set wal_level=logical and restart PostgreSQL"),
    ("permission denied", "grant the role what it needs: cdc.grants.prepare_source does"),
    ("replication role", "grant the role what it needs: cdc.grants.prepare_source does"),
    (
        "unexpected update message",
        "event tables are append-only: find who updates rows; OutboxSource(on_update=…) skips",
    ),
    ("not present in metadata", _TOPIC),
    ("invalid partition given", _TOPIC),
    ("could not read properties", "write the secrets file: cdc.secrets.write_secrets does; the worker must read it"),
    (
        "failed to find any class that implements",
        "install the Debezium plug-in into the worker's plugin.path",
    ),
    ("not found", "apply it first, or choose one of those `factfold cdc status` shows"),
    ("rebalance", "try again when the Connect cluster has settled"),
)
_DEFAULT_REMEDY: Final = "repair the cause, then apply again; the worker's log has the whole story"


def remedy_for(message: str) -> str:
    """Say what to do about a cause, by its words."""
    lowered = message.lower()
    return next((remedy for words, remedy in _REMEDIES if words in lowered), _DEFAULT_REMEDY)


def short_message(message: str) -> str:
    """Return Connect's answer as one line, without its heading and its advertisement."""
    core = _INVALID_ENDING.sub("", _INVALID_HEADING.sub("", message.strip()))
    return _cut("; ".join(line.strip() for line in core.splitlines() if line.strip()))


def short_trace(trace: str) -> tuple[str, ...]:
    """Return the causes of a Java stack trace, the root last: at most five lines, none repeated."""
    lines = trace.splitlines()
    heads = lines[:1] + [line[len(_CAUSED_BY) :] for line in lines if line.startswith(_CAUSED_BY)]
    causes = list(dict.fromkeys(_cut(_CLASS.sub(r"\1", head.strip())) for head in heads if head.strip()))
    return tuple(causes[-MAX_CAUSES:])


def _cut(line: str) -> str:
    if len(line) > MAX_LINE:
        # Debezium prints whole objects into its messages: `PostgresOffsetContext [sourceInfo=…[…]]`.
        while (shorter := _INNERMOST.sub("", line)) != line:
            line = shorter
    return line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…"
