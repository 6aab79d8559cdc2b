"""Programs of other frameworks, each in a virtual environment of its own under build/peers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
import venv
from pathlib import Path

import sqlalchemy as sa

PYEVENTSOURCING = "eventsourcing[postgres]==9.5.6"
_HERE = Path(__file__).parent / "peers"
_ENVIRONMENTS = Path("build/peers")


class Pyeventsourcing:
    """Its benchmark program on a database of its own."""

    name = "pyeventsourcing 9.5.6, default mode"

    def __init__(self, engine: sa.Engine) -> None:
        self._python = _environment("pyeventsourcing", PYEVENTSOURCING)
        self._database = f"peer_{uuid.uuid4().hex[:8]}"
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f'CREATE DATABASE "{self._database}"')
        self._url = engine.url

    def rate(self, what: str, *numbers: float) -> float:
        """Run one measurement in a process of its own; its unit is a second's worth."""
        arguments = [str(self._python), str(_HERE / "pyeventsourcing.py"), what, *map(str, numbers)]
        done = subprocess.run(arguments, env=os.environ | self._settings(), check=True, capture_output=True, text=True)
        return float(json.loads(done.stdout)["rate"])

    def _settings(self) -> dict[str, str]:
        url = self._url
        return {
            "POSTGRES_DBNAME": self._database,
            "POSTGRES_HOST": str(url.host),
            "POSTGRES_PORT": str(url.port or 5432),
            "POSTGRES_USER": str(url.username),
            "POSTGRES_PASSWORD": str(url.password or ""),
        }


def _environment(name: str, requirement: str) -> Path:
    """The Python of an environment that has a package, made at the first use."""
    folder = _ENVIRONMENTS / name
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        sys.stderr.write(f"installing {requirement} for the comparison\n")
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", requirement], check=True)
        ready.touch()
    return python.absolute()
