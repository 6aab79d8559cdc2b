"""What happens to a customer (operation, score, minute, LSN), and the versions then: score, from, to."""

from __future__ import annotations

HISTORIES = {
    "created, changed, deleted, created again": (
        [("c", 500, 1, 10), ("u", 600, 3, 20), ("d", None, 5, 30), ("c", 700, 6, 40)],
        [(500, 1, 3), (600, 3, 5), (700, 6, None)],
    ),
    "found by a snapshot: valid since ever": (
        [("r", 500, 4, 1_000), ("u", 600, 5, 1_010)],
        [(500, None, 5), (600, 5, None)],
    ),
    "a second snapshot": (
        [("r", 500, 2, 1_000), ("r", 600, 4, 1_010), ("d", None, 6, 1_020)],
        [(500, None, 4), (600, 4, 6)],
    ),
    "twice within a transaction: the first was never valid": (
        [("c", 500, 1, 10), ("u", 600, 2, 20), ("u", 700, 2, 30)],
        [(500, 1, 2), (700, 2, None)],
    ),
    "created and deleted in one transaction": ([("c", 500, 2, 10), ("d", None, 2, 20)], []),
    "deleted and created again in one transaction": (
        [("c", 500, 1, 10), ("d", None, 3, 20), ("c", 600, 3, 30)],
        [(500, 1, 3), (600, 3, None)],
    ),
    "the source's clock was set back: the newest wins in the end": (
        [("c", 500, 1, 10), ("u", 600, 5, 20), ("u", 700, 3, 30)],
        [(500, 1, 3), (700, 3, None)],
    ),
    "an update of a value to itself is a version": (
        [("c", 500, 1, 10), ("u", 500, 2, 20)],
        [(500, 1, 2), (500, 2, None)],
    ),
    "a score that is null": ([("c", None, 6, 10)], [(None, 6, None)]),
    "deleted only": ([("d", None, 3, 10)], []),
    "streamed below the snapshot's LSN, from a transaction that was open meanwhile": (
        [("r", 500, 4, 1_000), ("u", 600, 3, 990)],
        [(500, None, 3), (600, 3, None)],
    ),
    "twice within a microsecond, later": (
        [("c", 500, 2, 10), ("u", 600, 2, 20), ("u", 700, 4, 30), ("u", 800, 4, 40)],
        [(600, 2, 4), (800, 4, None)],
    ),
    "first known by an update": ([("u", 600, 3, 20)], [(600, 3, None)]),
}
