"""The preflight page: the command in a process of its own, and its findings."""

from __future__ import annotations

from tests.unit.console.conftest import cells
from tests.waiting import wait_until

ABOUT = "preflight"


def test_the_findings_of_a_check_are_shown_once_it_ends(fulfilled):
    assert "Nothing is checked yet" in fulfilled.page("/preflight").text()
    assert fulfilled.act("/preflight/check").status_code == 303
    wait_until(lambda: fulfilled.sources.jobs.about(ABOUT)[0].code == 0)
    page = fulfilled.page("/preflight")
    assert "safe to deploy" in page.text()
    levels = [row[0] for row in cells(page, "#findings")]
    assert levels == sorted(levels, key=["not checked", "green"].index)
    assert ["processes", "every instance that waits reaches a step of the code"] in [
        row[1:3] for row in cells(page, "#findings")
    ]
    assert fulfilled.json("/api/preflight")["safe"] is True


def test_a_check_that_failed_shows_its_output_and_without_a_package_there_is_none(nothing):
    refused = nothing.client.get(nothing.act("/preflight/check").headers["location"])
    assert "name it: factfold console PACKAGE" in refused.text
    assert not nothing.sources.jobs.about(ABOUT)
    nothing.sources.jobs.start(ABOUT, ["preflight", "no_such_package"])
    wait_until(lambda: nothing.sources.jobs.about(ABOUT)[0].code == 1)
    assert "no module 'no_such_package'" in nothing.page("/preflight").css_first("pre").text()
