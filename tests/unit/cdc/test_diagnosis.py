"""What a diagnosis says of sides that it did not look at."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine

from cdc import Severity, diagnose
from tests.unit.cdc.declared import MIRRORS, mariadb, mongodb, mysql, outbox, postgres, sqlserver


@pytest.mark.parametrize("declare", [postgres, outbox])
def test_a_source_whose_database_was_not_given_is_said_not_to_be_looked_at(declare: Any) -> None:
    (found,) = diagnose(declare())

    assert (found.severity, found.check) == (Severity.OK, "source")
    assert found.result == "not looked at: the URL of its database was not given (--source-url)"


@pytest.mark.parametrize("declare", [mysql, mariadb, sqlserver, mongodb, *MIRRORS])
def test_what_nobody_knows_how_to_look_into_is_said_not_to_be_looked_at(declare: Any) -> None:
    for engine in (None, create_engine("sqlite://")):
        (found,) = diagnose(declare(), source=engine)
        assert (found.severity, found.check) == (Severity.OK, "source")
        assert "not looked at" in found.result
