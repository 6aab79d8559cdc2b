"""`factfold console` as a process: the URL that it prints, what answers there, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.commands import factfold
from tests.unit.console.conftest import TEASHOP
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]


@contextmanager
def running(*arguments, cwd):
    """The command's process, and the URL that it printed."""
    command = [sys.executable, "-m", "factfold", "console", *arguments, "--port", "0", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes) as process:
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            process.wait(30)


def answer(url, path, **headers):
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)) as connection:
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as found:
            return found.status, dict(found.getheaders()), found.read().decode()


def test_the_printed_url_opens_what_the_file_of_the_folder_names_and_a_signal_ends_the_process(shop):
    url = f"sqlite:///{shop}"
    (shop.parent / "factfold.toml").write_text(f'store_url = "{url}"\nviews_url = "{url}"\n')
    with running(TEASHOP, cwd=shop.parent) as (process, printed):
        parts = urlsplit(printed)
        assert parts.hostname == "127.0.0.1"
        status, headers, _ = answer(printed, f"{parts.path}?{parts.query}")
        assert status == 303
        cookie = headers["set-cookie"].partition(";")[0]

        def watched():
            return json.loads(answer(printed, "/api/overview", Cookie=cookie)[2])["watched"]

        assert ("event store", "healthy") in [(one["name"], one["health"]) for one in wait_until(watched)]
        status, _, text = answer(printed, "/view", Cookie=cookie)
        assert (status, "order_details" in text) == (200, True)
        assert answer(printed, "/")[0] == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert parts.query.removeprefix("token=") not in process.stderr.read()


def test_a_port_that_is_taken_is_refused_with_what_to_do():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = factfold("console", "--port", str(taken.getsockname()[1]))
    assert "cannot listen on 127.0.0.1" in str(result.exception)
    assert "--port 0" in result.exception.remedy
