"""What a test asks of an error: its class, and the code that names its cause."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.errors import FactfoldError


def raises(kind: type[FactfoldError], *, code: str, match: str | None = None) -> Any:
    """Expect an error of a class and of one cause of it."""
    return pytest.raises(kind, match=match, check=lambda error: error.code == code)
