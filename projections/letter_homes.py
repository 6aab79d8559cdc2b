"""The homes of dead letters: topics of groups and of branches, inboxes of subscriptions on a store, and views."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from eventstore.backends.sql.store import SqlEventStore
from eventstore.errors import WrongType
from eventstore.extras import require_extra
from eventstore.identifiers import require_like, require_type
from eventstore.settings import Settings
from projections.declaring.branches import Branches

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore.deadletters import Letters
    from projections.stores.sql import TableStore


class HomeKind(StrEnum):
    """What dead letters are in: a topic, the database of the handlers, or that of the views. `letters` opens each."""

    TOPIC = "topic"
    INBOX = "inbox"
    VIEWS = "views"

    @property
    def source(self) -> str:
        """Which part of a service has it: its settings of Kafka, its event store, or its store of views."""
        return {"topic": "settings", "inbox": "store", "views": "views"}[self]


def letters(
    at: Settings | SqlEventStore | TableStore,
    topic: str | Branches,
    *,
    group: str | None = None,
    engine: Engine | None = None,
) -> Letters:
    """Open the dead letters of a group of a topic, or of branches.

    Args:
        at: Where they are: the settings of Kafka, the event store that a subscription reads, or the store of views
            (``environment.store``) for the records that a projection has set aside.
        topic: The topic that the group reads. Of branches, on Kafka, their definition, or the name of their topic.
            By the name alone their letters cannot be sent to their branches.
        group: The group of the subscription or of the projection, None for branches.
        engine: The database of the handler of a subscription that reads a store, by default the store's.

    Raises:
        NotFound: There is no dead-letter topic, or no table of dead letters.
        NoServingGeneration: No generation of the projection group serves.
        WrongType: A store is given without a group.

    Examples:
        >>> with letters(Settings(), "payment.suspicious", group="fraud") as opened:
        ...     opened.replay()
        >>> with letters(Settings(), payment_branches) as opened:
        ...     settled = opened.replay(to="branch")
        >>> with letters(store, "payment", group="books") as opened:
        ...     opened.replay().count
        2
        >>> for letter in letters(environment.store, "order", group="shop").open():
        ...     print(letter.origin, letter.error)
        order[0]@17 behind_a_gap
    """
    if isinstance(at, Settings):
        require_extra("kafka")
        if group is None:
            from projections.branching.letters import BranchLetters  # needs the extra kafka

            require_type(topic, (str, Branches), "topic", takes="the name of a topic, or branches")
            return BranchLetters(at, topic)
    if not (isinstance(topic, str) and isinstance(group, str)):
        remedy = "give both: letters(store, topic, group=…)"
        raise WrongType("the letters of a group have the names of its topic and of the group", remedy=remedy)
    if isinstance(at, Settings):
        from eventstore.deadletters.topic import GroupLetters  # needs the extra kafka

        return GroupLetters(at, topic, group)
    if isinstance(at, SqlEventStore):
        from eventstore.backends.sql.letters import SqlLetters  # needs the extra kafka

        return SqlLetters(at, topic, group=group, engine=engine)
    require_like(at, "serving_state", "at", takes="settings of Kafka, an event store or a store of views")
    from projections.stores.aside import SetAsideLetters  # needs the extra spark, as its store does

    return SetAsideLetters(at, topic, group=group)
