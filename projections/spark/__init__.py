"""Spark: sessions, bounded reads, decoding, folds, live batches and the functions of views.

The room imports declarations, plans, logs and stores. It never knows the runner, and no other room imports pyspark.
"""

from eventstore.extras import require_extra

require_extra("spark")
