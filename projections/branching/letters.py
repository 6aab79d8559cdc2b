"""The dead letters of branches: records that no branch could be found for, routed again by the present definition.

A replay puts a record into its branch, as the router would: no other reader of the source topic sees it again, and the
source topic stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from eventstore.deadletters.records import origin_partition, own_headers
from eventstore.deadletters.topic import Chosen, Road, TopicLetters, to_topic
from eventstore.erasure import Origin, PersonalData
from eventstore.errors import FactfoldError, ForeignRecord, ReplayRefused, SchemaError, UnknownEventType
from eventstore.kafka.producer import OutgoingRecord
from eventstore.topics import BRANCH_HEADER, TopicRecord, dead_letter_topic_of, require_source
from projections.declaring.branches import Branches
from projections.errors import InvalidPredicate

if TYPE_CHECKING:
    from eventstore.deadletters.letters import Target
    from eventstore.fields.serialization import AvroDecoder
    from eventstore.settings import Settings

# No predicate asks for a personal value, so they stay sealed.
_KEYLESS: Final = PersonalData(None)
# What the router makes a dead letter of: a record that is so still stays one.
_DEADLY: Final[tuple[type[FactfoldError], ...]] = (SchemaError, ForeignRecord, UnknownEventType, InvalidPredicate)


class BranchLetters(TopicLetters):
    """The dead letters of branches, given as their definition or as the name of their topic.

    By the name alone, letters can be listed, shown, discarded, and sent to a topic without compaction.
    """

    targets = ("branch", "topic")

    def __init__(self, settings: Settings, branches: Branches | str) -> None:
        topic = branches if isinstance(branches, str) else branches.topic
        super().__init__(settings, topic, dead_letter_topic_of(topic))
        self._branches = branches

    def _road(self, target: Target, chosen: Chosen) -> Road:
        branches = self._branches
        if target == "topic":
            return to_topic(self._settings, self._topic, chosen, group=None)
        if isinstance(branches, str):
            raise ReplayRefused(
                f"the branch of a letter of {branches!r} follows from the definition of the branches",
                remedy="give it: --branches MODULE:NAME, in Python letters(settings, branches)",
                place=self.place,
            )
        self._offsets.partitions(branches.topics.values())  # TopicMissing: the router makes them
        return lambda record: routed_again(record, branches, self._decoding.decoder)


def routed_again(record: TopicRecord, branches: Branches, decoder: AvroDecoder) -> OutgoingRecord:
    """The record as the router would write it. Raises ReplayRefused if it is a dead letter still."""
    try:
        if branches.source is not None:
            require_source(record.headers, branches.source, place=record.place)
        schema, values = decoder.decode(record.value or b"")
        (data,) = _KEYLESS.disclose([(schema, values, Origin("", ""))])
        branch = branches.branch_of_record(schema, data)
    except _DEADLY as error:
        raise ReplayRefused(
            f"it would be a dead letter again: {type(error).__name__}: {error.message}",
            remedy="mend the definition or the schema, then replay it, or discard it",
            place=record.place,
        ) from error
    topic, partition = branches.topics[branch], origin_partition(record, branches.topic) or 0
    headers = (*own_headers(record), (BRANCH_HEADER, branch.encode()))
    return OutgoingRecord(topic=topic, key=record.key, value=record.value, headers=headers, partition=partition)
