"""Addresses of the console."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Addresses, as the settings file, the environment or options give them; None for what is not configured."""

    store_url: str | None = None
    store_schema: str | None = None
    views_url: str | None = None
    connect_url: str | None = None
    source_url: str | None = None
    inbox_url: str | None = None
    checkpoints: Path | None = None
    kafka: bool = False
