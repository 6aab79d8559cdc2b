"""The root of the package: what it offers, and what importing it does not load."""

from __future__ import annotations

import subprocess
import sys

import cdc


def test_every_offered_name_exists_and_the_list_is_sorted() -> None:
    assert sorted(cdc.__all__) == cdc.__all__
    assert all(getattr(cdc, name) is not None for name in cdc.__all__)
    assert dir(cdc) == cdc.__all__


def test_importing_the_root_loads_no_client_library() -> None:
    program = "import sys, cdc; print(*sys.modules)"

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert not {"requests", "sqlalchemy", "confluent_kafka", "pydantic"} & set(ran.stdout.split())


def test_grants_and_decoding_use_sqlalchemy_as_a_type_only() -> None:
    modules = "cdc.source.grants, cdc.changes.change_event, cdc.operating.control"
    program = f"import sys, {modules}; print('sqlalchemy' in sys.modules)"

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "False"
