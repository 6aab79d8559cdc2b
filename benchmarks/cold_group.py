"""The join of the log that FACTFOLD_BENCH_LOG names, for a command in a process of its own."""

import os

from benchmarks.shop_log import join_of

group = join_of(os.environ["FACTFOLD_BENCH_LOG"])
