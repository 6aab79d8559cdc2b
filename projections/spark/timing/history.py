"""The function of histories: versions with the names of their times, without those that ended too long ago."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from projections.declaring.event_versions import FROM, TO
from projections.declaring.timing.validity import CURRENT, Validity


class History:
    """The function of a history, which is handed versions as rows."""

    takes_versions = True

    def __init__(self, validity: Validity, key: Sequence[str], parameter: inspect.Signature) -> None:
        self.validity = validity
        self._key = key
        self.__signature__ = parameter
        self.signature = f"history {validity}"

    def __call__(self, versions: DataFrame) -> DataFrame:
        """The versions of each key, which are handed with their times."""
        columns = [column for column in versions.columns if column not in (FROM, TO)]
        start, end = F.col(FROM).alias(self.validity.start), F.col(TO).alias(self.validity.end)
        rows = versions if self.validity.keep is None else self._young(versions, self.validity.keep)
        return rows.select(*columns, start, end, F.col(TO).isNull().alias(CURRENT))

    def _young(self, versions: DataFrame, keep: int) -> DataFrame:
        """Without those that ended too long before the newest change of their row.

        Not before now: a batch, a rebuild and a comparison at other times would have other rows.
        """
        changed = F.greatest(F.unix_micros(FROM), F.unix_micros(TO))
        newest = versions.withColumn("_newest", F.max(changed).over(Window.partitionBy(*self._key)))
        return newest.where(F.col(TO).isNull() | (F.unix_micros(TO) + keep >= F.col("_newest")))
