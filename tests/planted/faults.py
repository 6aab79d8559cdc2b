"""The planted faults: small changes of the product that its tests must notice."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("faults.toml")


@dataclass(frozen=True)
class Fault:
    """One change: the text `find`, which stands once in `file`, becomes `replace`.

    At least one of `tests`, files or node ids, fails then.
    """

    name: str
    mechanism: str
    file: str
    find: str
    replace: str
    tests: list[str]

    def planted(self, text: str) -> str:
        """Return the file's text with the fault in it."""
        return text.replace(self.find, self.replace)


def planted_faults() -> list[Fault]:
    """Return all faults of the list, in its order."""
    return [Fault(**fault) for fault in tomllib.loads(LIST.read_text(encoding="utf-8"))["fault"]]
