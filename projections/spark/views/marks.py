"""What the metadata of columns says to whoever reads the plan of a view."""

from __future__ import annotations

from typing import Final

ROLE: Final = "factfold.role"  # the view's parameter that a column is of
PARTITION: Final = "factfold.partition"  # the column of ``by`` whose value it is, of a function of ours
