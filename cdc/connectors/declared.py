"""What every declaration says, and what Kafka Connect gets of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from cdc.connectors.base import (
    Owned,
    Value,
    check_sequence,
    check_sequences,
    check_settings,
    masked_repr,
    texts,
)
from cdc.errors import InvalidConnector
from cdc.identifiers import check_connector_name
from cdc.transforms import Transform, compiled

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore.topics import TopicSpec


@dataclass(frozen=True, kw_only=True, repr=False)
class Connector:
    """A connector of any kind, as `apply_connector` takes it.

    `extra` overrides any setting of the connector and of Connect that has no field here, by its own name. `unchecked`
    passes settings that our lists of names do not know, and is the way around what a declaration refuses of the others:
    it comes last, and its values are not checked, not even whether a reader can read the result.
    `transforms` work in their order, after the connector's own. `allow_literal_secrets` lets secrets stand in clear.
    Errors: InvalidConnector and its kinds, InvalidIdentifier.

    Examples:
        >>> connectors: tuple[Connector, ...] = load_connectors("connectors.toml")
        >>> [connector.name for connector in connectors]
        ['shop_tables', 'shop_outbox']
    """

    JAVA_CLASS: ClassVar[str]
    CATALOGUE: ClassVar[str]
    OWNED: ClassVar[frozenset[str]] = frozenset({"name", "connector.class"})

    name: str
    transforms: tuple[Transform, ...] = ()
    extra: Mapping[str, Value] = field(default_factory=dict)
    unchecked: Mapping[str, Value] = field(default_factory=dict)
    allow_literal_secrets: bool = False

    def __post_init__(self) -> None:
        check_sequences(self)
        check_connector_name(self.name)
        words: Any = {"owned": self._owned(), "connector": self.name, "allow_literal": self.allow_literal_secrets}
        check_settings(self.extra, catalogue=self.CATALOGUE, **words)
        check_settings(self.unchecked, catalogue=None, **words)

    @property
    def has_heartbeats(self) -> bool:
        """Whether it shows that it works though nothing happens at its source."""
        return False

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """How the topics that the declaration names have to be, for `ensure_topics`."""
        return ()

    def check_source(self, engine: Engine) -> None:
        """Check that the database is as the connector needs it. Raises SourceNotReady."""
        raise NotImplementedError

    def config(self) -> dict[str, str]:
        """Return the configuration for Kafka Connect, all values as text."""
        return {**self._declared(), **texts(self.unchecked)}

    def _declared(self) -> dict[str, str]:
        return {
            "connector.class": self.JAVA_CLASS,
            **self._settings(),
            **compiled(self.transforms, own=self._own_transforms()),
            **texts(self.extra),
        }

    def _settings(self) -> dict[str, str]:
        raise NotImplementedError

    def _own_transforms(self) -> tuple[Transform, ...]:
        return ()

    def _owned(self) -> Owned:
        # Of its own transforms every setting: one that is not written here could still turn them around.
        transforms = self._own_transforms()
        own = tuple(f"{kind}.{one.name}." for one in transforms for kind in ("transforms", "predicates"))
        return Owned(self.OWNED | compiled(self.transforms, own=transforms).keys(), own)

    def _settle(self, attribute: str, value: object) -> None:
        object.__setattr__(self, attribute, value)

    def _at_least(self, attribute: str, least: int) -> None:
        if getattr(self, attribute) < least:
            raise InvalidConnector(
                f"connector {self.name!r} has {attribute}={getattr(self, attribute)}",
                remedy=f"set {attribute} to {least} or more",
                place=attribute,
            )

    def _some(self, attribute: str, what: str) -> None:
        check_sequence(self, attribute)
        if not getattr(self, attribute):
            raise InvalidConnector(
                f"connector {self.name!r} captures no {what}",
                remedy=f"name at least one in {attribute}",
                place=attribute,
            )

    def __repr__(self) -> str:
        return masked_repr(self)
