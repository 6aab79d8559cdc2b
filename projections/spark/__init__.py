"""Everything that runs on Spark: bounded reads, decoding, folds, batches; nothing outside imports pyspark."""
