"""The `factfold` command."""

from __future__ import annotations

from factfold.cli.entry import main

__all__ = ["main"]
