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
    "there is one, apply: a new initial snapshot wins over all older changes. Rows that are deleted meanwhile stay in "
    "the topics: to lose them, delete the changelog topics too, and rebuild the views"
)
_TRUNCATED: Final = (
    "a captured table was emptied by TRUNCATE, which no compacted topic carries: declare truncates='skip', apply, "
    "delete the rows with factfold cdc compare --repair, and declare truncates='stop' again"
)
_OVERSIZED: Final = (
    "a row is larger than a request, or than its topic takes: `factfold cdc status` names its tables, how to find it "
    "and the setting to raise"
)
_TOPIC: Final = "create the topic with the partition count of its category: factfold cdc prepare does"
_HOST: Final = "start the database, or check its host and port as the worker sees them"
_SUPERUSER: Final = "run it as a superuser: only one makes roles with REPLICATION, or changes them"
_RIGHTS: Final = "grant the role what it needs: factfold cdc prepare does"
# A pattern of a cause in lower case → what to do. The first match counts, so what says more comes first: PostgreSQL
# names roles and databases in the details of very different refusals.
_REMEDIES: Final = (
    (
        "password authentication failed|access denied for user",
        "check the user, and the password behind the connector's reference",
    ),
    (r"no pg_hba\.conf entry", "let the role connect from the worker's address in pg_hba.conf"),
    ("permission denied to (create|alter) role|must be superuser to (create|alter) replication", _SUPERUSER),
    (
        "must be superuser to create for all tables|publication .* is defined as for all tables",
        "a publication of FOR ALL TABLES is not ours: name another in publication=, which factfold cdc prepare "
        "makes for the captured tables alone",
    ),
    ("must be owner of publication", "run it as the publication's owner or a superuser, or name another publication"),
    ("must be owner", "run it as the tables' owner or a superuser"),
    (
        "permission denied for database",
        "GRANT CONNECT ON DATABASE … to the role; who makes a publication needs CREATE on the database: its owner has",
    ),
    (
        r"slot .* is active for pid|already active",
        "stop the other connector on this slot, or choose another slot; after a crash wait until the server notices",
    ),
    ("all replication slots are in use", "raise max_replication_slots, or drop slots without a reader"),
    ("no longer available on the server|slot is ahead", LOST_SLOT),
    ("permission denied|replication role", _RIGHTS),
    (r'database "[^"]*" does not exist', "check the database name"),
    (r'role "[^"]*" does not exist', "create the role: factfold cdc prepare does"),
    (r'role "[^"]*" is not permitted to log in', "ALTER ROLE … LOGIN: factfold cdc prepare does"),
    ("publication", "create the publication as the tables' owner: factfold cdc prepare does"),
    ("wal_level", "set wal_level=logical and restart PostgreSQL"),
    ("connection refused|connection to|connection attempt failed", _HOST),
    ("unknownhostexception", "check the database host as the worker sees it"),
    (
        "unexpected update message",
        "event tables are append-only: find the program that updates rows; OutboxSource(on_update=…) skips",
    ),
    ("cannot accept message without key", _TRUNCATED),
    ("bytes when serialized which is larger than|larger than the max message size", _OVERSIZED),
    ("not present in metadata|invalid partition given", _TOPIC),
    ("could not read properties", "write the secrets file: factfold cdc prepare does; the worker must read it"),
    ("failed to find any class that implements", "install the Debezium plug-in into the worker's plugin.path"),
    (
        "unauthorized|forbidden|user cannot access the resource",
        "check the user and password (auth=, or in the URL) and the headers with which the worker is asked",
    ),
    ("not found", "apply it first, or choose one of those `factfold cdc status` shows"),
    ("rebalance", "try again when the Connect cluster has settled"),
)
_DEFAULT_REMEDY: Final = "repair the cause, then apply again; the worker's log has the whole story"


def remedy_for(message: str) -> str:
    """Say what to do about a cause, by its words."""
    lowered = message.lower()
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, lowered)), _DEFAULT_REMEDY)


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
