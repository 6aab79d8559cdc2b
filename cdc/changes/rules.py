"""What a reader of changelog topics must know, in one place for Python and for Spark.

A record's value is Debezium's change event, `{"before": row, "after": row, "source": {...}, "op": "c", ...}`; null is a
tombstone. It comes as JSON alone, as JSON with its schema (`{"schema": {...}, "payload": {...}}`) or as Avro.
"""

from __future__ import annotations

from typing import Final

# What Debezium sends for a value that is not in the log, unless its connector has another text: see placeholders.
UNAVAILABLE: Final = "__debezium_unavailable_value"

# The prefix of the messages we write into a source's log to see them come out again; no topic gets them.
MARK_PREFIX: Final = "factfold.heartbeat"

OP_INSERT: Final = "c"
OP_UPDATE: Final = "u"
OP_DELETE: Final = "d"
OP_SNAPSHOT: Final = "r"
# Neither is a change of one row: the key of a TRUNCATE is null, that of a message the message's prefix.
OP_TRUNCATE: Final = "t"
OP_MESSAGE: Final = "m"

FIELD_BEFORE: Final = "before"
FIELD_AFTER: Final = "after"
FIELD_OP: Final = "op"
# Which life of its source a change comes from; our connectors add it where it is not the first.
FIELD_EPOCH: Final = "factfold_epoch"
# Which text stands for a value that the log does not have; our connectors add it to every change.
FIELD_UNAVAILABLE: Final = "factfold_unavailable"

# `source.snapshot` of a streamed change; rows of a snapshot say first, first_in_data_collection, true, last, and those
# of a snapshot taken during streaming, incremental.
STREAMED: Final = "false"

# A place in MySQL's binary log as one number: the file's, and the byte in it. A file is cut at 1 GiB and outgrows that
# by its last transaction only; the number of a row inside its event decides nothing, the records' offsets do.
BINLOG_BYTES: Final = 38  # bits
