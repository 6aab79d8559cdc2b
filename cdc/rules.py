"""What a reader of changelog topics must know, in one place for Python and for Spark.

A record's value is Debezium's change event as JSON without a schema:
`{"before": row, "after": row, "source": {...}, "op": "c", ...}`; null is a tombstone.
"""

from __future__ import annotations

from typing import Final

# A column that an UPDATE left alone and that is stored out of line (TOAST) is not in the write-ahead log.
# Debezium sends this text in its place; base64 of it for bytea; for arrays a list of it, or of the codes of
# its characters where the items are numbers.
UNAVAILABLE: Final = "__debezium_unavailable_value"
UNAVAILABLE_BASE64: Final = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
UNAVAILABLE_CODES: Final = tuple(UNAVAILABLE.encode())

# The prefix of the messages we write into a source's log to see them come out again; no topic gets them.
MARK_PREFIX: Final = "factfold.heartbeat"

OP_INSERT: Final = "c"
OP_UPDATE: Final = "u"
OP_DELETE: Final = "d"
OP_SNAPSHOT: Final = "r"

FIELD_BEFORE: Final = "before"
FIELD_AFTER: Final = "after"
FIELD_OP: Final = "op"
# Which life of its source a change comes from; our connectors add it where it is not the first.
FIELD_EPOCH: Final = "factfold_epoch"

# `source.snapshot` of a streamed change; rows of a snapshot say first, first_in_data_collection, true, last…
STREAMED: Final = "false"

# Order of the changes of one key: (epoch, streamed, lsn, offset). `streamed` stands before the LSN because
# the LSN of a row change is where the change was written, not where its transaction committed: a transaction
# open while the slot was made can be streamed with an LSN below the snapshot's, and yet is newer than it.
POSITION_FIELDS: Final = ("epoch", "streamed", "lsn", "offset")
