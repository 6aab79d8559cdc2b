"""Output of a demonstration: steps with a spinner and their seconds, and a JSON file at the end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import stamina
import structlog
from rich.console import Console
from rich.table import Table


class Story:
    """Prints steps as they happen; ``facts`` is what is written as JSON."""

    def __init__(self, title: str) -> None:
        stamina.instrumentation.set_on_retry_hooks([])  # a retry that is expected is not part of the output
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
        self.facts: dict[str, Any] = {}
        self._console = Console(highlight=False)
        self._console.rule(f"[bold]{title}")

    def expect(self, error: type[Exception]) -> None:
        """Leave out of the log a failure that is a part of the story."""

        def unexpected(logger: object, method: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
            if event_dict.get("error") == error.__name__:
                raise structlog.DropEvent
            return event_dict

        structlog.configure(processors=[unexpected, *structlog.get_config()["processors"]])

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """One step, with its duration once it is over."""
        begun = time.perf_counter()
        with self._console.status(f"{text} …"):
            yield
        self._console.print(f"[green]✓[/] {text} [dim]({time.perf_counter() - begun:.1f} s)[/]")

    def say(self, text: str) -> None:
        """One line of the story."""
        self._console.print(f"  {text}")

    def rows(self, title: str, rows: Sequence[dict[str, Any]]) -> None:
        """Some rows of a view."""
        table = Table(title=title, title_justify="left", show_edge=False)
        for column in rows[0] if rows else ():
            table.add_column(column)
        for row in rows:
            table.add_row(*("" if v is None else str(v) for v in row.values()))
        self._console.print(table)

    def write(self, path: Path) -> None:
        """Write the facts as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.facts, indent=2, default=str) + "\n")
        self.say(f"figures written to {path}")
