"""Groups seen from Kafka: their members, and what a reset would move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from factfold import on_demand
from factfold.cli.events.subscriptions import parse_start
from factfold.console.page import FieldWrong
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from eventstore.delivery.subscriptions import Start
    from eventstore.kafka.groups import GroupStanding, Move


def read_standing(clients: Clients, group: str) -> GroupStanding:
    """Return the state of a group and its members."""
    return on_demand.group_standing(clients.settings, group)


def read_plan(clients: Clients, group: str, topic: str, to: str) -> tuple[Move, ...]:
    """Return what a reset would do to each partition of a topic. Raises FieldWrong for no place."""
    return on_demand.reset_plan(clients.settings, topic, group=group, to=place_of(to))


def place_of(text: str) -> Start:
    """Return the place that a text means, as `subscriptions reset --to` takes it. Raises FieldWrong."""
    try:
        return parse_start(text)
    except typer.BadParameter as error:
        raise FieldWrong(error.message, remedy="write beginning, end, 2026-11-26T12:00:00Z or 0=12,1=30") from None


STANDING: Final = Reading(read_standing)
PLAN: Final = Reading(read_plan)
