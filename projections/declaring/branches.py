"""Branches: the records of an event topic, each put into exactly one topic by the first predicate that matches it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from eventstore.aggregates.aggregate import Aggregate
from eventstore.fields.upcasting import FIRST
from eventstore.identifiers import check_source, check_topic
from eventstore.schema_registry import RegisteredSchema
from eventstore.store import RecordedEvent
from eventstore.topics import DEAD_LETTERS, dead_letter_topic_of
from projections.declaring.event_fields import check_against, check_predicate
from projections.declaring.event_tables import topic_of
from projections.declaring.matching import Matcher, matcher
from projections.declaring.naming import listed
from projections.declaring.predicates import Predicate
from projections.errors import InvalidDefinition

_BRANCH_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True)
class Branches:
    """The declared branches of one event topic. `branches` makes and checks them.

    Attributes:
        aggregate: The aggregate of the events.
        topic: The event topic.
        predicates: The condition of each branch, in the order in which they are tried.
        otherwise: The branch of records that match no condition.
        source: The only service whose records are routed. Others become dead letters.

    Examples:
        >>> payment_branches = branches(Payment, {"suspicious": field("amount") > 900}, otherwise="validated")
        >>> payment_branches.topics
        {'suspicious': 'payment.suspicious', 'validated': 'payment.validated'}
    """

    aggregate: type[Aggregate]
    topic: str
    predicates: Mapping[str, Predicate]
    otherwise: str
    source: str | None = None

    def __repr__(self) -> str:
        """One line: the topic and its branches."""
        return f"<Branches of {self.topic}: {listed(self.names)}>"

    @property
    def names(self) -> tuple[str, ...]:
        """All branches in their order, the one for everything else last."""
        return (*self.predicates, self.otherwise)

    @property
    def topics(self) -> Mapping[str, str]:
        """The topic of each branch: ``payment.suspicious`` for branch ``suspicious`` of topic ``payment``."""
        return {name: f"{self.topic}.{name}" for name in self.names}

    @property
    def dead_letter_topic(self) -> str:
        """The topic of records that cannot be decoded or tested."""
        return dead_letter_topic_of(self.topic)

    def branch_of(self, event: RecordedEvent, *, schema: RegisteredSchema | None = None) -> str:
        """Return the branch of one event, computed in plain Python.

        Args:
            event: The event.
            schema: The schema that wrote its record. Without it, only the values up to the matching condition are
                looked at.

        Raises:
            UnknownEventType: The aggregate has no such event type.
            InvalidEventData: The current code cannot read the event.
            InvalidPredicate: A condition cannot be tested on records of the schema. A router makes dead letters of all
                three.
        """
        return self._branch(event.type, event.schema_version, event.data, schema)

    def branch_of_record(self, schema: RegisteredSchema, data: Mapping[str, Any]) -> str:
        """Return the branch of a decoded record as the router does: by its schema, whatever its headers say.

        Raises the errors of ``branch_of``.
        """
        return self._branch(schema.name, schema.version, data, schema)

    def _branch(self, name: str, version: int, data: Mapping[str, Any], schema: RegisteredSchema | None) -> str:
        kind = self.aggregate.stored_type(name)
        ((_, values),) = kind.today(version, data)
        if schema is not None and schema.id not in self._accepted:
            self.require_comparable(kind.seen(schema))
            self._accepted.add(schema.id)
        matching = (name for name, matches in self._matchers.items() if matches(kind.name, values))
        return next(matching, self.otherwise)

    def require_comparable(self, schema: RegisteredSchema) -> None:
        """Raise InvalidPredicate unless every condition can be tested on records of a schema, once they are read."""
        for predicate in self.predicates.values():
            check_against(predicate, schema)

    @cached_property
    def _accepted(self) -> set[int]:
        """The ids of schemas that were looked at."""
        return set()

    @cached_property
    def _matchers(self) -> Mapping[str, Matcher]:
        return {name: matcher(predicate) for name, predicate in self.predicates.items()}

    def description(self) -> Mapping[str, str]:
        """The definition as text, stored next to a Spark checkpoint to find what has changed."""
        tried = {f"branch {number} {name}": str(p) for number, (name, p) in enumerate(self.predicates.items(), 1)}
        own = {} if self.source is None else {"source": self.source}
        return {"topic": self.topic, **own, **tried, "otherwise": self.otherwise}

    def fingerprint(self) -> str:
        """A text of 64 digits that changes whenever a record could get another branch."""
        return hashlib.sha256(json.dumps(list(self.description().items())).encode()).hexdigest()


def branches(
    aggregate: type[Aggregate],
    chosen: Mapping[str, Predicate],
    *,
    otherwise: str,
    topic: str | None = None,
    source: str | None = None,
) -> Branches:
    """Declare the branches of an aggregate's event topic.

    Args:
        aggregate: The aggregate of the events.
        chosen: The condition of each branch. They are tried in their order, and the first match decides.
        otherwise: The branch of records that match no condition.
        topic: The topic, by default that of ``source``, or the aggregate's category without a source.
        source: The only service whose records are routed. Others become dead letters.

    Raises:
        InvalidDefinition: A name is wrong.
        InvalidDefinition: No event has a field of a condition.
        InvalidPredicate: A field cannot be compared so.

    Examples:
        >>> branches(Payment, {"suspicious": field("amount") > 900}, otherwise="normal")
    """
    if not (isinstance(aggregate, type) and issubclass(aggregate, Aggregate)):
        raise InvalidDefinition(
            f"{aggregate!r} has no events to branch", remedy="pass the aggregate class, and topic=… where it differs"
        )
    if source is not None:
        check_source(source)
    topic = check_topic(topic or topic_of(aggregate, source))
    declared = Branches(aggregate, topic, dict(chosen), otherwise, source)
    _check_names(declared)
    _check_upcasters(declared)
    for name, predicate in declared.predicates.items():
        _check_predicate(declared, name, predicate)
    return declared


def _check_names(declared: Branches) -> None:
    place = f"branches of {declared.topic}"
    if not isinstance(declared.otherwise, str):
        raise InvalidDefinition(
            f"there is exactly one otherwise, not {declared.otherwise!r}", remedy="name one branch", place=place
        )
    if not declared.predicates:
        raise InvalidDefinition("there is no branch", remedy="give at least one predicate, by branch name", place=place)
    if declared.otherwise in declared.predicates:
        raise InvalidDefinition(
            f"branch {declared.otherwise!r} has a predicate and is the otherwise too",
            remedy="give the otherwise a name of its own: it takes what no predicate matches",
            place=place,
        )
    for name in declared.names:
        _check_name(name, place)
    for topic in (*declared.topics.values(), declared.dead_letter_topic):
        check_topic(topic)


def _check_upcasters(declared: Branches) -> None:
    for kind in declared.aggregate.event_types.values():
        if not kind.upcasters.declared_from(FIRST):
            raise InvalidDefinition(
                f"a function upcasts {kind.name}, and the router runs no Python",
                remedy="declare the change by Rename, Default, Drop, Cast and Retype",
                place=f"branches of {declared.topic}",
            )


def _check_name(name: str, place: str) -> None:
    if not isinstance(name, str) or not _BRANCH_NAME.fullmatch(name) or name == DEAD_LETTERS:
        raise InvalidDefinition(
            f"{name!r} cannot be a branch",
            remedy="use a lower-case word such as suspicious, at most 40 letters, digits, dashes and underscores. "
            f"{DEAD_LETTERS} is taken",
            place=place,
        )


def _check_predicate(declared: Branches, name: str, predicate: Predicate) -> None:
    if not isinstance(predicate, Predicate):
        raise InvalidDefinition(
            f"branch {name!r} has {predicate!r} for a predicate",
            remedy='write one, such as field("amount") > 900. What no predicate matches goes to the otherwise',
            place=f"branches of {declared.topic}",
        )
    check_predicate(predicate, list(declared.aggregate.event_types.values()))
