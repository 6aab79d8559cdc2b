"""The list of planted faults fits the tree: each text stands where its entry says, and each test exists."""

from __future__ import annotations

import ast

from tests.planted.faults import ROOT, planted_faults
from tests.rows import each_row

FAULTS = planted_faults()
BY_NAME = [(fault.name, fault) for fault in FAULTS]


def test_no_fault_is_missing_and_each_has_a_name_of_its_own():
    assert len(FAULTS) == len({fault.name for fault in FAULTS}) == 110


@each_row("name, fault", BY_NAME)
def test_the_text_of_a_fault_stands_once_in_its_file_and_another_takes_its_place(name, fault):
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.find) == 1
    assert ast.dump(ast.parse(fault.planted(text))) != ast.dump(ast.parse(text))


@each_row("name, fault", BY_NAME)
def test_the_tests_of_a_fault_exist(name, fault):
    assert fault.tests
    for test in fault.tests:
        file, _, wanted = test.partition("[")[0].partition("::")
        body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        assert not wanted or wanted in {getattr(node, "name", None) for node in body}
