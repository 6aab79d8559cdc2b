"""What a test asks of an error: its class, and the code that names its cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eventstore.errors import FactfoldError
from projections.errors import InvalidDefinition


def raises(kind: type[FactfoldError], *, code: str | None = None, match: str | None = None, remedy: str = "") -> Any:
    """Expect an error of a class, of one cause of it if there is a code, and with these words in its remedy."""

    def check(error: FactfoldError) -> bool:
        assert code in (None, error.code)
        assert remedy in error.remedy
        return True

    return pytest.raises(kind, match=match, check=check)


def refused(declare: Callable[[], object], words: str, remedy: str = "") -> InvalidDefinition:
    """Expect a declaration to be refused in these words, with this remedy."""
    with pytest.raises(InvalidDefinition) as caught:
        declare()
    assert words in caught.value.message
    assert caught.value.remedy
    assert remedy in caught.value.remedy
    return caught.value
