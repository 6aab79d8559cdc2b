"""The stable names of views, which a database's other tables and views share."""

from __future__ import annotations

from typing import NamedTuple

from projections.stores.layout import generation_name


class Named(NamedTuple):
    """What has a name: a view, or something of another kind; ``generation`` is what a view of ours shows."""

    kind: str
    generation: str | None = None

    def is_of(self, group: str) -> bool:
        """Whether it shows some generation of the group, which a newer one may replace."""
        name = self.generation or ""
        number = name.rpartition("_")[2]
        return number.isdecimal() and name == generation_name(group, int(number))
