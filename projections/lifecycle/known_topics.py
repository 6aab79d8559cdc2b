"""Whether the topics that a run reads are still those that its generation was built from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from projections.errors import OffsetsLost
from projections.stores.runs import RunState, replaced_topics

if TYPE_CHECKING:
    from projections.connections import Connections
    from projections.declaring.group import ProjectionGroup

LOOK_SECONDS: Final = 10.0  # between two looks while a run works: each asks the broker


class KnownTopics:
    """The topics of a run, by the ids its generation has noted.

    A recreated topic has the offsets of the old one again, and may have more records by then than were applied:
    its length alone does not tell.
    """

    def __init__(self, environment: Connections, group: ProjectionGroup, state: RunState) -> None:
        self._log = environment.log
        self._topics = group.topics
        self._state = state
        self._next = 0.0

    def require(self) -> None:
        """Raise OffsetsLost where a topic is another one now; looks at most every ten seconds."""
        if time.monotonic() < self._next:
            return
        for topic in replaced_topics(self._state, self._log.topic_ids(self._topics)):
            raise OffsetsLost(
                "the topic was deleted and created again since the views were built",
                remedy="rebuild the projection: it reads the new one from its beginning",
                place=f"topic {topic}",
            )
        self._next = time.monotonic() + LOOK_SECONDS

    def doubt(self) -> None:
        """Look the next time, however short ago the last look was."""
        self._next = 0.0
