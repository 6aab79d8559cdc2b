"""Roles held by locks on files: a killed process releases them, and nothing has to be cleaned up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

from projections.stores.port import already_active

# A look whether a role is held takes its lock for some microseconds: a process tries several times before it gives up.
_LOOKS: Final = 3
_LOOK_SECONDS: Final = 0.01


@dataclass(frozen=True)
class RoleFiles:
    """The locks of one store, in files whose names begin with ``prefix``."""

    prefix: str

    def file(self, group: str, role: str) -> str:
        """The file whose lock is a role."""
        return f"{self.prefix}-{group}-{role}.lock"

    @contextlib.contextmanager
    def exclusive(self, group: str, *, role: str) -> Iterator[None]:
        """Hold a role of a group for the length of the block; raises RunAlreadyActive."""
        with open(self.file(group, role), "ab") as held:
            for _ in range(_LOOKS):
                if _locked(held, fcntl.LOCK_EX):
                    break
                time.sleep(_LOOK_SECONDS)
            else:
                raise already_active(group, role)
            yield

    def is_held(self, group: str, *, role: str) -> bool:
        """Whether any process holds a role of a group: tried by a lock that others may share, and let go at once."""
        if not os.path.exists(self.file(group, role)):
            return False
        with open(self.file(group, role), "rb") as looked_at:
            return not _locked(looked_at, fcntl.LOCK_SH)


def _locked(opened: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(opened, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
