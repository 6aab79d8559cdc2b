"""Everything that runs on Spark: bounded reads, decoding, folds, batches; nothing outside imports pyspark."""

from eventstore.extras import require_extra

require_extra("spark")
