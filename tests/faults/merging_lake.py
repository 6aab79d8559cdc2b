"""`factfold`, but for a Delta store that merges into every table, as it does into those that are large."""

from __future__ import annotations

from factfold.cli import main
from projections.spark.lakehouse import versioned

if __name__ == "__main__":
    versioned.mostly_rewritten = lambda _: 0
    main()
