"""The programs and the table of `python -m benchmarks`."""

from __future__ import annotations

import re

from benchmarks import append_async
from benchmarks.__main__ import main, programs, rows, table
from docs.performance_chart import drawn, margin

CLAIM = {
    "id": "rebuild.scan",
    "ours": 73464.2,
    "other": 178660.0,
    "other_name": "raw scan",
    "ratio": 0.4112,
    "unit": "records/s",
    "n": 1_000_000,
    "runs": 3,
    "target": 0.3,
    "met": True,
}


def test_a_claim_becomes_one_line_of_the_table():
    head, line = table(rows([{"machine": {}, "claims": [CLAIM]}])).splitlines()
    assert head.split() == ["claim", "ours", "other", "against", "ratio", "target", "met"]
    cells = re.split(r"  +", line)
    assert cells == ["rebuild.scan", "73,464 records/s", "178,660 records/s", "raw scan", "0.411", "0.3", "yes"]


def test_a_claim_that_is_not_met_is_shown_as_such():
    assert rows([{"claims": [CLAIM | {"met": False}]}])[0][-1] == "NO"


def test_only_modules_that_can_be_run_are_programs(tmp_path):
    (tmp_path / "rate.py").write_text('if __name__ == "__main__":\n    print()\n')
    (tmp_path / "machine.py").write_text("CORES = 2\n")
    (tmp_path / "__main__.py").write_text('if __name__ == "__main__":\n    print()\n')
    assert programs(tmp_path) == ["rate"]


def test_an_unknown_program_is_refused_with_those_there_are(capsys):
    assert main(["nonsense"]) == 2
    assert "no program nonsense; there are: " in capsys.readouterr().err


def test_a_claim_on_appends_of_tasks_counts_appends_not_tasks():
    claim = append_async._claim({"tasks.16": 1_000.0, "threads.16": 1_100.0}, 16, runs=3, seconds=4.0)
    assert (claim.id, claim.n) == ("append.tasks.16", 4_000)


def test_a_chart_has_a_bar_for_each_claim_as_far_as_it_is_from_its_target():
    rate = {"id": "rebuild.scan", "ratio": 0.15, "target": 0.3, "unit": "records/s", "met": False}
    time = {"id": "latency.view", "ratio": 150.0, "target": 300.0, "unit": "ms", "met": True}
    assert (margin(rate), margin(time)) == (-1.0, 1.0)
    bars = re.findall(r'<rect x="(\d+)" y="\d+" width="(\d+)" height="\d+" fill="(.*?)"/>', drawn([rate, time]))
    assert bars == [("415", "55", "#cf222e"), ("470", "55", "#2da44e")]
