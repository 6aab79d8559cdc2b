"""Debian's MariaDB captured by Debezium's MySQL connector, on a Connect worker of its own beside the session's.

The MariaDB connector cannot be had here. The one for MySQL takes a MariaDB that says it is an early MySQL 8.0: of later
ones it expects statements that MariaDB does not have.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from factfold.stack import ArtifactError, StackInfo, connect, kafka
from factfold.stack.artifacts import cached, check, connect_plugins, ivy_files
from factfold.stack.java import require_java
from factfold.stack.ports import LOOPBACK, free_ports
from factfold.stack.processes import Launch, Wait, kill, launch, says_it_is_well, until_answering
from factfold.stack.versions import Coordinate

PLUGIN: Final = Coordinate.parse("io.debezium:debezium-connector-mysql:3.6.1.Final:plugin@tar.gz")
_SHA256: Final = "1dfd80c86e204406c5d886836da1f022e4955bc3900c0491b892c22c8b901af2"
_SERVERS: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
# It asks no newer one for `transaction_isolation`, which MariaDB 10.11 calls `tx_isolation`.
_PRETENDED: Final = "8.0.2"


@dataclass(frozen=True)
class MariaDb:
    """A running server: its port, and a way to execute statements in it as its root."""

    folder: Path
    port: int

    def run(self, sql: str, *, database: str = "mysql") -> None:
        """Execute statements, each ended by a semicolon; RuntimeError with the server's words."""
        options = ["--no-defaults", "--default-character-set=utf8mb4", "-uroot", f"--socket={self.folder / 'socket'}"]
        ran = subprocess.run(
            ["mariadb", *options, database], input=sql, encoding="utf-8", check=False, capture_output=True
        )
        if ran.returncode != 0:
            raise RuntimeError(ran.stderr.strip())


def require_mariadb() -> None:
    """Skip the test where Debian's mariadb-server is not installed."""
    if shutil.which("mariadbd", path=_SERVERS) is None:
        pytest.skip("mariadb-server is not installed: apt-get install mariadb-server")


@contextmanager
def mariadb(folder: Path) -> Iterator[MariaDb]:
    """Start an empty MariaDB that writes a binary log, and end it; its root has no password, on its socket only."""
    data, port = folder / "data", free_ports(["mariadb"])["mariadb"]
    common = ["--no-defaults", f"--user={getpass.getuser()}", f"--datadir={data}"]
    install = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True)
    options = (
        f"--version={_PRETENDED}",
        f"--socket={folder / 'socket'}",
        f"--pid-file={folder / 'pid'}",
        f"--port={port}",
        f"--bind-address={LOOPBACK}",
        "--server-id=1",
        "--log-bin=binlog",
        "--binlog-format=ROW",
        "--binlog-row-image=FULL",
    )
    server, log = MariaDb(folder, port), folder / "mariadb.log"
    program = shutil.which("mariadbd", path=_SERVERS) or "mariadbd"
    process = launch(Launch([program, *common, *options], folder, log))
    try:
        until_answering(Wait("mariadb", process, lambda: _answers(server), log, 60), given_up=lambda: False)
        yield server
    finally:
        kill(process)


@contextmanager
def mysql_worker(info: StackInfo, folder: Path) -> Iterator[str]:
    """Start a Connect worker with the MySQL plug-in on the stack's broker; gives its URL."""
    port = free_ports(["worker"], besides=info.ports.values())["worker"]
    properties, log = folder / "connect.properties", folder / "connect.log"
    properties.write_text(kafka.properties_text(_properties(info, f"http://{LOOPBACK}:{port}")), "ascii")
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = kafka.java_command(info, server="connect-mysql", heap="512m", main=main)
    process = launch(Launch([*command, properties], folder, log))
    try:
        healthy = Wait("connect", process, lambda: says_it_is_well(port, "/health"), log, 180)
        until_answering(healthy, given_up=lambda: False)
        yield f"http://{LOOPBACK}:{port}"
    finally:
        kill(process)


def _properties(info: StackInfo, url: str) -> dict[str, object]:
    return {
        **connect.common_properties(),
        "bootstrap.servers": info.bootstrap_servers,
        "group.id": "connect-mysql",
        "config.storage.topic": "_mysql_configs",
        "offset.storage.topic": "_mysql_offsets",
        "status.storage.topic": "_mysql_status",
        "listeners": url,
        "rest.advertised.host.name": LOOPBACK,
        "plugin.path": ",".join(map(str, [_plugin(), *connect_plugins()])),
        "config.providers.file.param.allowed.paths": info.secrets_dir,
    }


def _plugin() -> Path:
    archive = cached(PLUGIN)
    folder = archive.parent.parent / "plugins" / archive.name.removesuffix(".tar.gz")
    if folder.exists():
        return folder
    workshop = folder.with_name(f"{folder.name}-{os.getpid()}")
    workshop.mkdir(parents=True)
    try:
        ivy_files([PLUGIN], into=workshop / "ivy", java=require_java(), on_file=lambda: None)
        check(workshop / "ivy" / "files" / PLUGIN.filename, expected=_SHA256)
        with tarfile.open(workshop / "ivy" / "files" / PLUGIN.filename) as tar:
            tar.extractall(workshop / "plugin")  # it is what its checksum says
        os.replace(workshop / "plugin", folder)
    except ArtifactError as error:
        pytest.skip(f"Debezium's MySQL connector cannot be fetched: {error.message}")
    finally:
        shutil.rmtree(workshop)
    return folder


def _answers(server: MariaDb) -> bool:
    try:
        server.run("SELECT 1;")
    except RuntimeError:
        return False
    return True
