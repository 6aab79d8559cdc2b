"""The brokers of a command that would otherwise try again and again at an address that nobody gave."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import eventstore
from eventstore.errors import BrokerUnreachable
from factfold import on_demand

if TYPE_CHECKING:
    pass

_DEADLINE_SECONDS: Final = 3.0


def brokers_are_named() -> bool:
    """Say whether a setting names brokers; the default address alone says nothing."""
    return any(name in os.environ for name in ("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "FACTFOLD_KAFKA"))


def reached_settings(*, without_kafka: str) -> eventstore.Settings:
    """Return the settings; BrokerUnreachable at once if none names a broker and the default address has none.

    Args:
        without_kafka: The end of the remedy: what the user may have meant.
    """
    settings = eventstore.Settings()
    if brokers_are_named():
        return settings
    try:
        with on_demand.OffsetReader(settings, deadline=_DEADLINE_SECONDS) as reader:
            reader.names()
    except BrokerUnreachable as error:
        raise BrokerUnreachable(
            f"no setting names a Kafka broker, and {settings.kafka.bootstrap_servers} has none",
            remedy="set FACTFOLD_KAFKA__BOOTSTRAP_SERVERS (bootstrap_servers of [kafka] in factfold.toml). "
            f"Without Kafka, {without_kafka}",
            place=error.place,
        ) from error
    return settings
