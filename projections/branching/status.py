"""How far a router of branches has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class BranchesStatus:
    """How far a topic's router is.

    Attributes:
        topic: The topic.
        lag: The offsets from the first record that waits to the end of the topic, 0 where no record waits. None before
            the first batch has ended.
        counts: The records written to each branch topic and the dead-letter topic.

    Examples:
        >>> branches_status(Settings(), payment_branches, checkpoints="/var/lib/shop").lag
        0
    """

    topic: str
    lag: int | None
    counts: Mapping[str, int]
