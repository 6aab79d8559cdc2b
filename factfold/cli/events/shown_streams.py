"""Events, streams, states and traces as JSON has them: what commands print with --json, and what the console shows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eventstore.delivery.masking import shown_payload
from factfold import on_demand
from factfold.cli.events.entry_display import entry_as_json
from factfold.cli.shown_values import as_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventstore import RecordedEvent, SqlEventStore
    from eventstore.inspection.entries import Entry
    from eventstore.inspection.stream_states import StreamState
    from eventstore.inspection.tracing import Step, Trace


def masked_entries(store: SqlEventStore, events: Iterable[RecordedEvent]) -> list[Entry]:
    """Return events of a store as entries, personal values masked, whether they are sealed or open."""
    log = on_demand.StoreLog(store)
    shown = (replace(one, data=shown_payload(store.schema(one.schema_id), one.data)) for one in events)
    return [log.entry(one) for one in shown]


def state_as_json(state: StreamState | None) -> dict[str, Any]:
    """A state at a version, and the values that its event changed."""
    if state is None:
        return {"state": None, "changes": None}
    changes = {name: {"before": as_json(old), "after": as_json(new)} for name, (old, new) in state.changes.items()}
    return {"state": as_json(dict(state.after)), "changes": changes}


def trace_as_json(conversation: Trace) -> dict[str, Any]:
    """A conversation, each step behind its cause."""
    return {
        "correlation_id": conversation.correlation_id,
        "steps": [_step_as_json(step) for step in conversation.steps],
    }


def _step_as_json(step: Step) -> dict[str, Any]:
    reactions = [
        {"group": one.group, "topic": one.topic, "outcome": one.outcome, "time": one.time.isoformat()}
        for one in step.reactions
    ]
    return {
        "kind": step.kind,
        "id": step.id,
        "name": step.name,
        "parent": step.parent,
        "depth": step.depth,
        "missing_cause": step.missing_cause,
        "reactions": reactions,
        "event": None if step.entry is None else entry_as_json(step.entry),
    }
