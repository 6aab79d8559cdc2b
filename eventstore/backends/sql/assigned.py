"""Event types under the ids that a registry gives their schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eventstore.event_types import EventType
from eventstore.schema_registry import RegisteredSchema, SchemaRegistry, fingerprint


class AssignedTypes:
    """Asks a registry once for each schema: a schema in the store's own table is not asked for again.

    A registry that is away therefore stops no append of an event type that was appended before.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._types: dict[int, EventType] = {}

    def of(self, kinds: Sequence[EventType], stored: Callable[[], Iterable[RegisteredSchema]]) -> list[EventType]:
        """Return the types in their order; ``stored`` returns every schema of the store. The registry's errors."""
        new = {kind.schema_id: kind for kind in kinds if kind.schema_id not in self._types}
        if new:
            ids = {fingerprint(s.schema): s for s in stored() if s.registry == self._registry.address}
            asked = [kind.registered for own_id, kind in new.items() if own_id not in ids]
            ids.update(zip((one.id for one in asked), self._registry.register(asked), strict=True))
            self._types.update((own_id, kind.under(ids[own_id])) for own_id, kind in new.items())
        return [self._types[kind.schema_id] for kind in kinds]
