"""A console without a PACKAGE: its threads are the first that need the stores' modules."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from factfold.console.pages.overview import overview
from factfold.console.parts import Places
from factfold.console.sources import Sources

url = sys.argv[1]
with Sources(Places(store_url=url, views_url=url), every=0.0, patience=30.0) as sources:
    before = set(sys.modules)
    found = overview(sources.look(), {})
own = ("cdc", "eventstore", "factfold", "projections")
late = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in own)
print(json.dumps([late, [one.problem.cause for one in found.empty]]))
"""


def test_no_thread_imports_a_module_of_ours_while_others_do(shop):
    command = [sys.executable, "-c", PROGRAM, f"sqlite:///{shop}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    late, problems = json.loads(ran.stdout.splitlines()[-1])
    assert late == []
    assert [cause for cause in problems if "reading failed" in cause] == []
