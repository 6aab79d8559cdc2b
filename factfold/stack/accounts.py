"""The account PostgreSQL runs under when we are root, which it refuses."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factfold.stack.errors import StackError

_CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """An existing unprivileged account."""

    name: str
    uid: int
    gid: int

    def own(self, path: Path) -> None:
        """Give one file or folder to this account."""
        os.chown(path, self.uid, self.gid)


def dropped_to(account: Account | None) -> dict[str, Any]:
    """Return the arguments that make `subprocess` run a program under an account alone, none for our own."""
    return {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}


def server_account() -> Account | None:
    """Return the account to drop to: None for a normal user, `postgres` or `nobody` for root."""
    if os.geteuid() != 0:
        return None
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise StackError(
        "PostgreSQL refuses to run as root and there is no account to drop to",
        remedy="run as a normal user, or create one: `useradd --system postgres`",
    )


def require_reachable(folder: Path, *, by: Account | None) -> None:
    """Raise StackError if `by` cannot pass through one of the folders that lead to `folder`."""
    if by is None:
        return
    for parent in [*reversed(folder.parents), folder]:
        if parent.exists() and not _may_enter(parent, by):
            raise StackError(
                f"the account {by.name}, which runs PostgreSQL because root may not, cannot enter {parent}",
                remedy=f"set FACTFOLD_HOME to a folder it can reach, or `chmod o+x {parent}`",
                place=str(folder),
            )


def _may_enter(folder: Path, account: Account) -> bool:
    status = folder.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)
