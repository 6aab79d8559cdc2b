"""Spark's standalone cluster on this machine: a master and workers, each a process group of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pyspark

from tests.waiting import wait_until

_SPARK = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_HERE = "127.0.0.1"


class StandaloneCluster:
    """One core and one gigabyte a worker; what still runs at the end of the block is killed."""

    def __init__(self, folder: Path, *, workers: int) -> None:
        self._folder, self._count = folder, workers
        self._port, self._page = _free_port(), _free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def settings(self) -> Mapping[str, str]:
        """The FACTFOLD_ variables that send a command's work here."""
        config = {"spark.driver.host": _HERE, "spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "8"}
        return {"FACTFOLD_SPARK_MASTER": self._url, "FACTFOLD_SPARK_CONFIG": json.dumps(config)}

    @property
    def _url(self) -> str:
        return f"spark://{_HERE}:{self._port}"

    def __enter__(self) -> StandaloneCluster:
        self._start("master.Master", "--port", str(self._port), "--webui-port", str(self._page))
        wait_until(self._answers, what="the cluster's master")
        for number in range(self._count):
            folder = str(self._folder / f"worker-{number}")
            page = ("--webui-port", str(_free_port()))
            self._start("worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", folder, *page, self._url)
        wait_until(lambda: self._alive() == self._count, what="the cluster's workers")
        return self

    def __exit__(self, *error: object) -> None:
        for process in reversed(self._processes):
            _kill(process)

    def kill_worker(self) -> None:
        """End a worker and its executors by SIGKILL."""
        _kill(self._processes[-1])

    def cores_used(self) -> int:
        """The cores that applications hold."""
        return int(self._state()["coresused"])

    def executors_say(self, text: str) -> bool:
        """Whether any executor's log has the text."""
        logs = self._folder.glob("worker-*/app-*/*/stderr")
        return any(text in log.read_text(errors="replace") for log in logs)

    def _start(self, kind: str, *options: str) -> None:
        command = [str(_SPARK / "bin/spark-class"), f"{_DEPLOY}.{kind}", "--host", _HERE, *options]
        environment = os.environ | {"SPARK_HOME": str(_SPARK), "SPARK_NO_DAEMONIZE": "1"}
        log = self._folder / f"spark-{len(self._processes)}.log"
        with log.open("wb") as said:
            self._processes.append(
                subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
            )

    def _state(self) -> dict[str, object]:
        with urllib.request.urlopen(f"http://{_HERE}:{self._page}/json/", timeout=5) as answer:
            return dict(json.load(answer))

    def _answers(self) -> bool:
        try:
            return bool(self._state())
        except (OSError, ValueError):  # its page comes up in steps
            return False

    def _alive(self) -> int:
        return int(str(self._state()["aliveworkers"]))


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HERE, 0))
        return int(probe.getsockname()[1])
