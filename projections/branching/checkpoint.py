"""The folder of a router: Spark's checkpoint, what it was made for, and a lock; readable by its owner only.

A Spark checkpoint holds how far a query has come and nothing about what the query did. The definition of the
branches is stored next to it: other predicates under an old checkpoint would route one half of the log by the old ones
and one by the new.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eventstore.file_locks import locked
from projections.declaring.branches import Branches
from projections.errors import DefinitionChanged, ProjectionError, RunAlreadyActive


@dataclass(frozen=True)
class RouterCheckpoint:
    """The folder of one router, named by its topic, in a folder that may hold several."""

    folder: Path

    @staticmethod
    def of(branches: Branches, checkpoints: str | Path) -> RouterCheckpoint:
        """The checkpoint of a topic's router; nothing is made or read yet."""
        return RouterCheckpoint(Path(checkpoints).expanduser().absolute() / branches.topic)

    @property
    def spark(self) -> Path:
        """Spark's own part."""
        return self.folder / "spark"

    @property
    def _definition(self) -> Path:
        return self.folder / "branches.json"

    @contextmanager
    def claimed(self, branches: Branches) -> Iterator[None]:
        """Hold the folder for one router.

        Raises ProjectionError for a folder that others may read, RunAlreadyActive where another process holds it,
        DefinitionChanged where it belongs to other branches.
        """
        self._make()
        with ExitStack() as claim:
            try:
                claim.enter_context(locked(self.folder / "lock", within=0, held=self._held))
            except OSError as error:
                raise _unusable(f"cannot be locked: {error.strerror}", self.folder) from error
            self._compare(branches)
            yield

    def _make(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.stat()
        except OSError as error:
            raise _unusable(f"cannot be made: {error.strerror}", self.folder) from error
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise _unusable("can be entered by others than its owner", self.folder)

    def _held(self) -> RunAlreadyActive:
        return RunAlreadyActive(
            f"another router holds the checkpoint of {self.folder.name}",
            remedy="stop it first. The lock of a killed process goes with it",
            place=str(self.folder),
        )

    def _compare(self, branches: Branches) -> None:
        if not self._definition.exists() and not self.spark.exists():
            self._write(branches)
            return
        known = self._read()
        if known.get("fingerprint") != branches.fingerprint():
            raise DefinitionChanged(
                f"the Spark checkpoint of {branches.topic} was made for other branches: "
                + _difference(known.get("branches", {}), branches.description()),
                remedy="restore the old branches, or give the new ones another checkpoint folder: they route the topic "
                "again from its beginning, or with start=end only what is new",
                place=str(self.folder),
            )

    def _write(self, branches: Branches) -> None:
        text = json.dumps({"fingerprint": branches.fingerprint(), "branches": branches.description()}, indent=2)
        temporary = self._definition.with_suffix(".new")
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(self._definition)

    def _read(self) -> Mapping[str, Any]:
        try:
            stored = json.loads(self._definition.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stored if isinstance(stored, dict) else {}

    def committed(self) -> Mapping[int, int] | None:
        """The offset after the last committed one, by partition, or None before the first batch has ended."""
        ended = [int(path.name) for path in (self.spark / "commits").glob("*") if path.name.isdigit()]
        for batch in sorted(ended, reverse=True):
            offsets = self.spark / "offsets" / str(batch)
            if offsets.exists():
                return _offsets(offsets.read_text(encoding="utf-8"), self.folder.name)
        return None


def _offsets(text: str, topic: str) -> Mapping[int, int]:
    """Spark's offset log of a batch: a version, metadata, and one line of offsets a source."""
    offsets = json.loads(text.splitlines()[-1])
    return {int(partition): offset for partition, offset in offsets[topic].items()}


def _difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    changes = [f"{key} was {before.get(key, 'not there')}, is {now.get(key, 'not there')}" for key in keys]
    return "; ".join(changes) or "its definition cannot be read"


def _unusable(why: str, folder: Path) -> ProjectionError:
    return ProjectionError(
        f"the checkpoint folder {why}",
        remedy="give a folder that this user can write. One that is there needs mode 0700 (chmod 700)",
        place=str(folder),
        code="checkpoint-unusable",
    )
