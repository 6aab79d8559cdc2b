"""The conformance suites live in the packages; their assertions are to be explained as tests' are."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("eventstore.testing.conformance")
