"""`factfold`, but for a Delta batch that writes the ledger's row before the tables: the planted fault."""

from __future__ import annotations

from factfold.cli import main
from projections.spark.lakehouse import batches
from projections.spark.lakehouse.batches import DeltaBatch, DeltaBatches
from projections.spark.lakehouse.store import require_at
from projections.spark.live.incremental import BatchReport


def ledger_first(self, offsets):
    """The commit names the versions that the writes behind it will make."""
    report = BatchReport(offsets.records)
    base = require_at(self.store.entry(self.run), self.run, offsets.start).tables
    writes = DeltaBatch(self, base, {}, report, self.store.session(offsets.records)).worked_out(offsets)
    versions = {name: base[name] + 1 for name in writes}
    self.store.advance(self.run, start=offsets.start, end=offsets.end, tables=versions, base=base)
    batches._written(writes)
    return report


if __name__ == "__main__":
    DeltaBatches.apply = ledger_first
    main()
