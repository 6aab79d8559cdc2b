"""Where the stack keeps downloads and servers' data: the user's own folders, never the current one."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Jars, plugins and the PostgreSQL tree; may be deleted at any time while no stack is up."""
    return _folder("cache", variable="XDG_CACHE_HOME", home=".cache", system="/var/cache")


def state_folder() -> Path:
    """One folder a stack: data, logs, secrets and the state file."""
    return _folder("state", variable="XDG_STATE_HOME", home=".local/state", system="/var/lib")


def stacks_folder() -> Path:
    """Parent of every stack's folder."""
    return state_folder() / "stacks"


def _folder(kind: str, *, variable: str, home: str, system: str) -> Path:
    own = os.environ.get("FACTFOLD_HOME")
    if own:
        return Path(own).expanduser().absolute() / kind
    standard = os.environ.get(variable)
    if standard:
        return Path(standard).absolute() / "factfold"
    # root's home is closed to the account PostgreSQL runs under, since it refuses to run as root.
    return (Path(system) if os.geteuid() == 0 else Path.home() / home) / "factfold"
