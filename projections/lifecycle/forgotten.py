"""The events that the serving generation has forgotten. Other generations are made without them."""

from __future__ import annotations

import pyarrow.compute as pc

from projections.declaring.group import ProjectionGroup
from projections.environment import Environment
from projections.faults import FORGOTTEN, TIME_PREFIX
from projections.logs.set_aside import SetAside
from projections.stores.port import ViewColumns
from projections.stores.runs import SERVING


def forgotten_by_serving(environment: Environment, group: ProjectionGroup, columns: ViewColumns) -> SetAside:
    """What the serving generation of this definition has set aside as forgotten: others are made without it too.

    Their rows were forgotten when they came. Another generation may still have such rows.
    """
    store, forgotten = environment.store, SetAside.nothing()
    for state in store.states(group.name, SERVING) if group.retention is not None else ():
        if state.run.fingerprint == group.fingerprint():
            forgotten |= environment.keeper.noted(state, store.layout(group, state.run, columns)).of_kind(FORGOTTEN)
    # What is noted is the message of each, which ends with its detail.
    detail = pc.replace_substring_regex(forgotten.faults["detail"], pattern=f"^.*{TIME_PREFIX}", replacement="")
    return SetAside(forgotten.faults.set_column(forgotten.faults.schema.get_field_index("detail"), "detail", detail))
