"""Branches: the records of an event topic, each put into exactly one topic by the first predicate that matches it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from eventstore.aggregate import Aggregate
from eventstore.identifiers import check_source, check_topic
from eventstore.messages import RecordedEvent
from eventstore.schema_registry import RegisteredSchema
from eventstore.upcasting import FIRST
from projections.branching.matching import Matcher, matcher
from projections.declaring.event_fields import check_against, check_predicate
from projections.declaring.event_tables import topic_of
from projections.declaring.naming import listed
from projections.errors import InvalidDefinition
from projections.predicates import Predicate

DEAD_LETTER: Final = "dead-letter"
_BRANCH_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True)
class Branches:
    """Declared branches of one event topic. Made by ``branches``, which checks them.

    ``predicates`` are in the order in which they are tried. ``otherwise`` is where a record goes that none matches.
    With ``source`` a record of another service is a dead letter.
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
        """Every branch, in order, the otherwise last."""
        return (*self.predicates, self.otherwise)

    @property
    def topics(self) -> Mapping[str, str]:
        """The branch topic of each branch: ``payment.suspicious`` for branch ``suspicious`` of topic ``payment``."""
        return {name: f"{self.topic}.{name}" for name in self.names}

    @property
    def dead_letter_topic(self) -> str:
        """Where records go that cannot be decoded, or to which a predicate cannot be put."""
        return f"{self.topic}.{DEAD_LETTER}"

    def branch_of(self, event: RecordedEvent, *, schema: RegisteredSchema | None = None) -> str:
        """The branch of one event, in plain Python. ``schema`` is the one that its record was written by.

        Raises UnknownEventType for a type that the aggregate does not declare, InvalidEventData for an event that
        the current code cannot read, InvalidPredicate if a predicate cannot be put to records of the schema. All are
        dead letters of a router. Without a schema the values
        alone are looked at, of the predicates up to the one that matches.
        """
        return self._branch(event.type, event.schema_version, event.data, schema)

    def branch_of_record(self, schema: RegisteredSchema, data: Mapping[str, Any]) -> str:
        """The branch of a decoded record, as the router finds it: by its schema, whatever its headers say.

        The errors of ``branch_of``.
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
        """Raise InvalidPredicate unless every predicate can be put to records that look, once read, like a schema."""
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
        """What decides where records go, as text: stored next to a Spark checkpoint, to find what has changed."""
        tried = {f"branch {number} {name}": str(p) for number, (name, p) in enumerate(self.predicates.items(), 1)}
        own = {} if self.source is None else {"source": self.source}
        return {"topic": self.topic, **own, **tried, "otherwise": self.otherwise}

    def fingerprint(self) -> str:
        """A text of 64 digits that changes whenever a record could go elsewhere."""
        return hashlib.sha256(json.dumps(list(self.description().items())).encode()).hexdigest()


def branches(
    aggregate: type[Aggregate],
    chosen: Mapping[str, Predicate],
    *,
    otherwise: str,
    topic: str | None = None,
    source: str | None = None,
) -> Branches:
    """Declare the branches of an aggregate's event topic: that of the service ``source``, unless ``topic`` is given.

    Without ``source`` the topic is the aggregate's category. The predicates are tried in order and the first that
    matches decides. ``otherwise`` takes what none matches.
    Raises InvalidDefinition for names that cannot be, UnknownField and InvalidPredicate for predicates.
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
    if not isinstance(name, str) or not _BRANCH_NAME.fullmatch(name) or name == DEAD_LETTER:
        raise InvalidDefinition(
            f"{name!r} cannot be a branch",
            remedy="use a lower-case word such as suspicious, at most 40 letters, digits, dashes and underscores. "
            f"{DEAD_LETTER} is taken",
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
