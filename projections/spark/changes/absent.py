"""Declared columns that a change event's row does not have, as a Spark column: see `cdc.changes.record_columns`.

A parser gives null for them, as for a NULL that was sent. Which of the two it is, is asked of rows with a null alone:
a whole row pays a comparison for it.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Final

from cdc.changes.rules import OP_INSERT, OP_SNAPSHOT, OP_UPDATE
from projections.declaring.tables import CapturedTable

if TYPE_CHECKING:
    from pyspark.sql import Column

    from projections.spark.changes.parsers import RecordParser

ABSENT: Final = "_absent"  # the column with their names, and a comma between two
_WITH_ROW: Final = (OP_INSERT, OP_UPDATE, OP_SNAPSHOT)


def absent_columns(table: CapturedTable, parser: RecordParser) -> Column:
    """Over parsed records: the names of columns that a row must have and lacks, "" where it lacks none."""
    from pyspark.sql import functions as F

    names = table.never_absent
    if not names:
        return F.lit("")
    row, has_row = F.col("v.after"), F.col("v.op").isin(*_WITH_ROW)
    some_null = functools.reduce(operator.or_, (row[c].isNull() for c in names))
    return F.coalesce(F.when(has_row & some_null, parser.absent(names)), F.lit(""))


def is_absent(column: str) -> Column:
    """Whether a column is one of those in `ABSENT`."""
    from pyspark.sql import functions as F

    return F.find_in_set(F.lit(column), F.col(ABSENT)) > 0


def listed(names: Column) -> Column:
    """The names as text for a message."""
    from pyspark.sql import functions as F

    return F.replace(names, F.lit(","), F.lit(", "))
