"""Spark: sessions, bounded reads, decoding, folds, live batches and the functions of views.

The room imports declarations, plans, logs, stores and outputs. It never knows the runner.
No other room imports pyspark.
"""

from eventstore.extras import require_extra

require_extra("spark")
