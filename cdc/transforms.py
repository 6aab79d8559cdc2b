"""What Kafka Connect does with each record before it is written: single message transforms, as typed objects.

A connector takes them as `transforms=(…)` and they work in that order, after those that the connector itself needs.
Readers of change events (`ChangeDecoder`, `Table.from_changelog`) read the envelope as Debezium makes it: `Flatten` and
`EventRouter` leave nothing of it, `Mask` changes it. Each names the readers of its output.

A transform that takes a record apart would put a column's DEFAULT in the place of a NULL. Ours are set to keep the NULL
(`replace.null.with.default=false`), where the transform has that setting: all but `EventRouter`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

from cdc.connectors.base import check_sequences, holds_secret, masked_repr, setting
from cdc.connectors.secrets import refuse_literal
from cdc.errors import InvalidConnector

_KAFKA: Final = "org.apache.kafka.connect.transforms"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
Settings = dict[str, str]
_NULLS_STAY: Final = {"replace.null.with.default": "false"}
# Kafka's transforms that have the setting, read off Kafka 4.3.1, and Debezium's.
_HAVE_IT: Final = (
    *(f"{_KAFKA}.{name}" for name in ("Cast", "ExtractField", "HeaderFrom", "InsertField", "MaskField", "ReplaceField",
                                      "SetSchemaMetadata", "TimestampConverter", "ValueToKey")),
    "io.debezium.transforms.ExtractNewRecordState",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Configured:
    """What Connect makes of a class of its own: ``KEYS`` are the settings of fields, and ``FIXED`` further ones."""

    java_class: ClassVar[str] = ""
    KEYS: ClassVar[Mapping[str, str]] = {}
    FIXED: ClassVar[Settings] = {}

    def __post_init__(self) -> None:
        if type(self) in (Transform, RecordPredicate):
            kind, example = type(self).__name__, "Flatten, TopicMatches or Custom"
            raise InvalidConnector(
                f"a {kind} of no kind does nothing", remedy=f"use one of its kinds, such as {example}"
            )
        check_sequences(self)

    def settings(self) -> Settings:
        """Return the settings by their own names. Empty fields have none."""
        given = ((key, getattr(self, name)) for name, key in self.KEYS.items())
        written = {key: ",".join(one) if isinstance(one, tuple | list) else setting(one) for key, one in given}
        return {**{key: text for key, text in written.items() if text}, **self.FIXED}


@dataclass(frozen=True, kw_only=True)
class RecordPredicate(_Configured):
    """A condition on a record. Use TopicMatches, IsTombstone or HasHeader.

    Examples:
        >>> predicate: RecordPredicate = TopicMatches(pattern=".*[.]drafts")
        >>> PostgresSource(**shop, transforms=(Filter(when=predicate),))
    """


@dataclass(frozen=True, kw_only=True)
class TopicMatches(RecordPredicate):
    """Whether the whole name of the record's topic matches a regular expression, in Java's dialect.

    Examples:
        >>> drafts = TopicMatches(pattern="shop[.]public[.]drafts")
        >>> PostgresSource(**shop, transforms=(Filter(when=drafts),))
    """

    java_class = f"{_KAFKA}.predicates.TopicNameMatches"
    KEYS: ClassVar = {"pattern": "pattern"}
    pattern: str


@dataclass(frozen=True, kw_only=True)
class IsTombstone(RecordPredicate):
    """Whether the record has no value.

    Examples:
        >>> PostgresSource(**shop, transforms=(InsertHeader(header="deleted", value="yes", when=IsTombstone()),))
    """

    java_class = f"{_KAFKA}.predicates.RecordIsTombstone"


@dataclass(frozen=True, kw_only=True)
class HasHeader(RecordPredicate):
    """Whether the record has at least one header of that name.

    Examples:
        >>> mark = InsertHeader(header="draft", value="yes", when=TopicMatches(pattern=".*[.]drafts"))
        >>> PostgresSource(**shop, transforms=(mark, Filter(when=HasHeader(header="draft"))))
    """

    java_class = f"{_KAFKA}.predicates.HasHeaderKey"
    KEYS: ClassVar = {"header": "name"}
    header: str


@dataclass(frozen=True, kw_only=True)
class Transform(_Configured):
    """A step for all records, or for those that match `when`, or do not match it with `negate`.

    `name` is its name in Connect, by default its kind and its place.

    Examples:
        >>> orders = TopicMatches(pattern="shop[.]public[.]orders")
        >>> transform: Transform = InsertHeader(header="origin", value="shop", when=orders)
        >>> PostgresSource(**shop, transforms=(transform,))
    """

    name: str = ""
    when: RecordPredicate | None = None
    negate: bool = False


@dataclass(frozen=True, kw_only=True)
class Flatten(Transform):
    """Replaces the change event by the row itself: Debezium's ExtractNewRecordState.

    For sinks and readers that know rows and no envelopes. Projections need envelopes, and cannot order flattened rows.
    MongoDB's documents need `Custom` with ExtractNewDocumentState.

    Attributes:
        deletes: What a delete leaves.
        fields: Parts of the envelope to add as fields, such as `op` or `source.lsn`.
        headers: Parts of the envelope to add as headers. A value that is not in the log becomes the connector's
            `placeholder`.

    Examples:
        >>> PostgresSource(**shop, transforms=(Flatten(fields=("op",)),))
    """

    java_class = "io.debezium.transforms.ExtractNewRecordState"
    KEYS: ClassVar = {"deletes": "delete.tombstone.handling.mode", "fields": "add.fields", "headers": "add.headers"}
    FIXED = _NULLS_STAY
    deletes: Literal["drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"] = "tombstone"
    fields: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EventRouter(Transform):
    """Turns rows of an outbox table into records of their own topics: Debezium's EventRouter.

    The event store's own tables need only `OutboxSource`. In a nullable column with a DEFAULT, EventRouter writes the
    default in place of a NULL: give a column of an outbox table no DEFAULT, or NOT NULL.

    Attributes:
        id: The column of the row's id.
        key: The column of the message key.
        event_type: The column of the type.
        payload: The column of the payload.
        route_by: The column whose value replaces `${routedByValue}` in `topic`.
        placements: Further columns for headers, the payload or the partition, as Debezium writes them:
            `column:header:name`.

    Examples:
        >>> router = EventRouter(payload="body", placements=("tenant:header:tenant",))
        >>> PostgresSource(**shop, transforms=(router,))
    """

    java_class = "io.debezium.transforms.outbox.EventRouter"
    KEYS: ClassVar = {
        "id": "table.field.event.id", "key": "table.field.event.key", "event_type": "table.field.event.type",
        "payload": "table.field.event.payload", "placements": "table.fields.additional.placement",
        "tombstone_on_empty_payload": "route.tombstone.on.empty.payload", "on_update": "table.op.invalid.behavior",
        "route_by": "route.by.field", "topic": "route.topic.replacement",
    }  # fmt: skip
    id: str = "id"
    key: str = "aggregateid"
    event_type: str = "type"
    payload: str = "payload"
    route_by: str = "aggregatetype"
    topic: str = "outbox.event.${routedByValue}"
    placements: tuple[str, ...] = ()
    require_placements: bool = True
    tombstone_on_empty_payload: bool = False
    on_update: Literal["fatal", "error", "warn"] = "warn"

    def settings(self) -> Settings:
        """Return columns, placements and the way records are routed."""
        placed = {"table.fields.additional.error.on.missing": setting(self.require_placements)}
        return {**super().settings(), **(placed if self.placements else {})}


@dataclass(frozen=True, kw_only=True)
class Filter(Transform):
    """Drops the records that match `when`. Without `when` it would drop all, and is refused.

    Examples:
        >>> drafts = TopicMatches(pattern=".*[.]drafts")
        >>> PostgresSource(**shop, transforms=(Filter(when=drafts),))
    """

    java_class = f"{_KAFKA}.Filter"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.when is None:
            problem = "a Filter without a predicate drops every record"
            raise InvalidConnector(problem, remedy="say which: when=…", place="when")


@dataclass(frozen=True, kw_only=True)
class RouteByRegex(Transform):
    """Sends records to another topic if their topic matches a whole regular expression. `$1` is its first group.

    The connector's `topic(table)` still returns the original topic.

    Examples:
        >>> route = RouteByRegex(pattern="shop[.]public[.](.*)", replacement="rows.$1")
        >>> PostgresSource(**shop, transforms=(route,))
    """

    java_class = f"{_KAFKA}.RegexRouter"
    KEYS: ClassVar = {"pattern": "regex", "replacement": "replacement"}
    pattern: str
    replacement: str


@dataclass(frozen=True, kw_only=True)
class Mask(Transform):
    """Replaces top-level fields of the value by `replacement`. Null stays null.

    A change event's fields are `before` and `after`, not columns: mask after `Flatten`, or let Debezium mask columns
    (`extra={"column.mask.with.12.chars": "public.customers.email"}`), which leaves change events readable. Tombstones
    have no fields and would stop the connector: they pass unchanged unless `when` is given.

    Examples:
        >>> PostgresSource(**shop, transforms=(Flatten(), Mask(fields=("email",), replacement="(hidden)")))
    """

    java_class = f"{_KAFKA}.MaskField$Value"
    KEYS: ClassVar = {"fields": "fields", "replacement": "replacement"}
    FIXED = _NULLS_STAY
    fields: tuple[str, ...]
    replacement: str = ""
    when: RecordPredicate | None = field(default_factory=IsTombstone)
    negate: bool = True


@dataclass(frozen=True, kw_only=True)
class InsertField(Transform):
    """Adds a top-level field with a fixed text to every value. Tombstones stay unchanged.

    Examples:
        >>> PostgresSource(**shop, transforms=(Flatten(), InsertField(field="origin", value="shop")))
    """

    java_class = f"{_KAFKA}.InsertField$Value"
    KEYS: ClassVar = {"field": "static.field", "value": "static.value"}
    FIXED = _NULLS_STAY
    field: str
    value: str = dataclasses.field(repr=False)


@dataclass(frozen=True, kw_only=True)
class InsertHeader(Transform):
    """Adds a header with a fixed text to every record.

    Examples:
        >>> PostgresSource(**shop, transforms=(InsertHeader(header="origin", value="shop"),))
    """

    java_class = f"{_KAFKA}.InsertHeader"
    header: str
    value: str = field(repr=False)

    def settings(self) -> Settings:
        """Return the header and its literal.

        The transform reads numbers and keeps quotes: `1.0` would come out as 1. With a fraction below the precision of
        the 32-bit float it makes of it, it is no whole number to the parser and prints as 1.0.
        """
        literal = f"{self.value}000000001" if re.fullmatch(r"[1-9]\.0", self.value) else self.value
        return {"header": self.header, "value.literal": literal}


@dataclass(frozen=True, kw_only=True, repr=False)
class Custom(Transform):
    """Any other transform, by its Java class.

    A class of Kafka or Debezium that can retain NULLs does, unless `options` says otherwise. Kafka's Flatten cannot: it
    writes a column's DEFAULT in place of a NULL.

    Attributes:
        class_name: The Java class.
        options: Its settings by their own names, secrets as references.

    Examples:
        >>> replace = "org.apache.kafka.connect.transforms.ReplaceField$Value"
        >>> PostgresSource(**shop, transforms=(Flatten(), Custom(class_name=replace, options={"exclude": "email"})))
    """

    class_name: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, value in self.options.items():
            if holds_secret(key, value):
                place = f"options.{key}"
                refuse_literal(key, value, connector=self.name or self.class_name, place=place, allowable=False)

    def settings(self) -> Settings:
        """Return the settings as given, and retain NULLs if the class can."""
        keeps = _NULLS_STAY if self.class_name.partition("$")[0] in _HAVE_IT else {}
        return {**keeps, **self.options}

    def __repr__(self) -> str:
        return masked_repr(self)


def compiled(transforms: Sequence[Transform], *, own: Sequence[Transform] = ()) -> dict[str, str]:
    """Write transforms as Connect reads them: in order, each with its predicate; InvalidConnector.

    Those of the connector's own come first, have names, and are not counted in the names of the others.
    """
    named = _named(own, transforms)
    if not named:
        return {}
    config = {"transforms": ",".join(named)}
    asked = {name: transform.when for name, transform in named.items() if transform.when is not None}
    if asked:
        config["predicates"] = ",".join(asked)
    for name, transform in named.items():
        config |= _of_transform(name, transform)
    for name, predicate in asked.items():
        config[f"predicates.{name}.type"] = predicate.java_class
        config |= {f"predicates.{name}.{key}": value for key, value in predicate.settings().items()}
    return config


def _named(own: Sequence[Transform], transforms: Sequence[Transform]) -> dict[str, Transform]:
    named = {transform.name: transform for transform in own}
    for place, transform in enumerate(transforms, start=1):
        name = transform.name or f"{type(transform).__name__.lower()}{place}"
        if name in named or _NAME.fullmatch(name) is None:
            raise InvalidConnector(
                f"transform name {name[:80]!r} is taken or no name",
                remedy="give each transform a name of its own, of letters, digits and underscores",
                place=name[:80],
            )
        named[name] = transform
    return named


def _of_transform(name: str, transform: Transform) -> dict[str, str]:
    kind = transform.class_name if isinstance(transform, Custom) else transform.java_class
    config = {"type": kind, **transform.settings()}
    if transform.when is not None:
        config |= {"predicate": name, "negate": setting(transform.negate)}
    return {f"transforms.{name}.{key}": value for key, value in config.items()}
