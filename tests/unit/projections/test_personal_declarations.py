"""A declaration that would work on sealed values, as if they were clear, is refused."""

from __future__ import annotations

from typing import Annotated

import pytest

from eventstore import Aggregate, Personal, event
from projections import Table, branches, field
from projections.errors import InvalidDefinition, InvalidPredicate


class Guest(Aggregate):
    @event
    class Invited:
        name: Annotated[str, Personal(erased="(erased)")]
        table: int


def test_a_fold_in_python_and_a_predicate_on_a_sealed_field_are_refused():
    with pytest.raises(InvalidDefinition, match="could not be forgotten"):
        Table.from_events(Guest, key="guest_id")
    with pytest.raises(InvalidPredicate, match="a router sees it sealed"):
        branches(Guest, {"nameless": field("name").is_null()}, otherwise="named")
