"""Where batches may end: anywhere, or where transactions of a source do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from projections.logs.offsets import Offsets
from projections.logs.port import RecordLog, SourceBoundaries

if TYPE_CHECKING:
    from projections.declaring.group import ProjectionGroup


@dataclass(frozen=True)
class Boundaries:
    """Those of every source whose transactions a group keeps whole."""

    sources: Sequence[SourceBoundaries] = ()

    def within(self, start: Offsets, ends: Offsets, *, most: int) -> tuple[Offsets, Offsets]:
        """The ends of whole transactions, and those of the other topics, which may be cut anywhere."""
        whole: dict[str, dict[int, int]] = {}
        for source in self.sources:
            begun, waiting = ({t: dict(side[t]) for t in source.topics} for side in (start, ends))
            whole |= {t: dict(parts) for t, parts in source.whole(begun, waiting, most=most).items()}
        return whole, {topic: parts for topic, parts in ends.items() if topic not in whole}

    def latest(self, beginning: Offsets, ends: Offsets) -> Offsets:
        """The ends as of now, those of the sources at the end of a transaction."""
        result = {t: dict(parts) for t, parts in ends.items()}
        for source in self.sources:
            begun = {t: dict(beginning[t]) for t in source.topics}
            result |= {t: dict(parts) for t, parts in source.latest(begun).items()}
        return result


@contextmanager
def open_boundaries(log: RecordLog, group: ProjectionGroup) -> Iterator[Boundaries]:
    """Connect to the transaction topics of a group, if it names any; InvalidDefinition for a log without."""
    with ExitStack() as opened:
        sources = [log.transactions(prefix, group.captured_by(prefix)) for prefix in group.transactions]
        for source in sources:
            opened.callback(source.close)
        yield Boundaries(sources)
