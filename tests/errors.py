"""What a test asks of an error: its class, and the code that names its cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eventstore.errors import FactfoldError
from projections.errors import InvalidDefinition


def raises(kind: type[FactfoldError], *, code: str, match: str | None = None) -> Any:
    """Expect an error of a class and of one cause of it."""
    return pytest.raises(kind, match=match, check=lambda error: error.code == code)


def refused(declare: Callable[[], object], words: str, remedy: str = "") -> None:
    """Expect a declaration to be refused in these words, with this remedy."""
    with pytest.raises(InvalidDefinition) as caught:
        declare()
    assert words in caught.value.message
    assert remedy in caught.value.remedy
