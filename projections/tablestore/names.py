"""The stable names of views, which a database's other tables and views share."""

from __future__ import annotations

import re
from typing import NamedTuple

from projections.tablestore.layout import generation_name


class Named(NamedTuple):
    """What has a name: a view, or something of another kind; ``generation`` is what a view of ours shows."""

    kind: str
    generation: str | None = None


def shows_generation_of(group: str, found: Named) -> bool:
    """Whether a view shows some generation of a group, which a newer one may replace."""
    return re.fullmatch(f"{generation_name(group, 0)[:-1]}[0-9]+", found.generation or "") is not None
