"""`factfold stack`: up, status, logs, down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from factfold.cli.options import Commands, argument, option, setting
from factfold.cli.show import Out, answer, as_json, echo
from factfold.scaffolding import write_docker
from factfold.stack import LocalStack
from factfold.stack.local import known_server
from factfold.stack.postgres import create_database, psql_command
from factfold.stack.processes import tail
from factfold.stack.state import SERVERS

if TYPE_CHECKING:
    from factfold.stack import StackInfo

app = Commands("PostgreSQL, Kafka and Kafka Connect on this machine, without Docker.")

Name = Annotated[str, setting("--stack", "The name of the stack. Several can be up at once.")]


@app.command()
def up(
    out: Out,
    name: Name = "default",
    port: Annotated[
        list[str] | None, option("--port", "Fix a port, such as `postgres=5432`.", metavar="SERVER=N")
    ] = None,
    registry: Annotated[bool, option("--registry", "Start a Confluent-compatible schema registry too.")] = False,
) -> None:
    """Start the servers that do not run and wait until all answer."""
    began = time.monotonic()
    stack = LocalStack(name, ports=_ports(port or []))
    info = stack.up([*SERVERS, "registry"] if registry else SERVERS)
    out.show(_described(stack), _summary(info, seconds=time.monotonic() - began), indent=2)


@app.command()
def status(out: Out, name: Name = "default") -> None:
    """Show each server's state. Exit code 0 if all are up, 3 if not."""
    described = _described(LocalStack(name))
    out.show(described, _table(described), indent=2)
    answer(all(server["state"] == "up" for server in described["servers"].values()))


@app.command()
def logs(
    server: Annotated[str, argument("postgres, kafka, connect or registry.")],
    name: Name = "default",
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many lines from the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing what is added.")] = False,
) -> None:
    """Print the end of a server's log."""
    log = LocalStack(name).info.log(known_server(server))
    echo(tail(log, lines=lines))
    if follow:
        for text in _added(log):
            echo(text, nl=False)


@app.command()
def createdb(database: Annotated[str, argument("The name of the database.")], out: Out, name: Name = "default") -> None:
    """Create a database in the stack's PostgreSQL if it is missing."""
    created = create_database(LocalStack(name).info, database)
    said = f"database {database!r} {'created' if created else 'exists already'}"
    out.show({"database": database, "created": created}, said, indent=2)


@app.command()
def env(
    out: Out,
    database: Annotated[str, argument("The database of your service. See createdb.")] = "postgres",
    name: Name = "default",
) -> None:
    """Print the variables that other commands read, password included: eval "$(factfold stack env shop)"."""
    import shlex

    variables = _variables(LocalStack(name).info, database)
    out.show(variables, (f"export {name}={shlex.quote(value)}" for name, value in variables.items()), indent=2)


@app.command()
def psql(
    database: Annotated[str, argument("The database. See createdb.")] = "postgres",
    arguments: Annotated[list[str] | None, argument("Arguments of psql, after --.", "-- ARGUMENTS")] = None,
    name: Name = "default",
) -> None:
    """Open psql in a database of the stack's PostgreSQL: factfold stack psql shop -- -c "SELECT 1"."""
    import os

    given = list(arguments or ())
    if database.startswith("-"):  # nothing stood before --
        given, database = [database, *given], "postgres"
    command, variables = psql_command(LocalStack(name).info, database, given)
    os.execve(command[0], command, {**os.environ, **variables})  # noqa: S606 - psql takes this process's place


@app.command()
def export(
    folder: Annotated[Path, argument("The folder, made if it is missing.")],
    out: Out,
    service: Annotated[
        str | None, option("--service", "A package of `factfold new`: write its own compose file and image too.")
    ] = None,
) -> None:
    """Write the same servers for Docker into the folder `docker` of a folder. Existing files are replaced."""
    written = [str(file) for file in write_docker(folder, service=service)]
    out.show({"files": written}, written, indent=2)


def _variables(info: StackInfo, database: str) -> dict[str, str]:
    url = info.postgres.url(database)
    databases = {f"FACTFOLD_{name}_URL": url for name in ("STORE", "INBOX", "VIEWS", "SOURCE")}
    return {
        "FACTFOLD_STACK": info.name,
        "FACTFOLD_ADMIN_URL": info.postgres.url(),
        "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": info.bootstrap_servers,
        "FACTFOLD_CONNECT_URL": info.connect_url,
        # Spark's checkpoints end with the topics: `down --purge` removes both.
        "FACTFOLD_CHECKPOINTS": str(info.folder / "checkpoints"),
        **({"FACTFOLD_REGISTRY__URL": info.registry_url} if "registry" in info.servers else {}),
        **databases,
    }


@app.command()
def down(
    name: Name = "default",
    purge: Annotated[bool, option("--purge", "Remove data, logs and secrets too.")] = False,
) -> None:
    """Stop the servers that `up` started. Data stays without --purge."""
    stopped = LocalStack(name).down(purge=purge)
    echo(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")


def _ports(texts: list[str]) -> dict[str, int]:
    ports = {}
    for text in texts:
        server, _, number = text.partition("=")
        if not number.isdigit() or not 0 < int(number) < 65536:
            raise typer.BadParameter(f"{text!r} is not SERVER=PORT, such as postgres=5432")
        ports[known_server(server)] = int(number)
    return ports


def _described(stack: LocalStack) -> dict[str, Any]:
    facts = ("state", "port", "pid", "log")
    servers = {one.server: {name: as_json(getattr(one, name)) for name in facts} for one in stack.status()}
    return {**stack.info.public(), "servers": servers}


def _summary(info: StackInfo, *, seconds: float) -> Iterator[str]:
    yield f"stack {info.name!r} is up after {seconds:.1f} s"
    yield f"  PostgreSQL     {info.postgres.host}:{info.postgres.port}, superuser {info.postgres.superuser}"
    yield f"  Kafka          {info.bootstrap_servers}"
    yield f"  Kafka Connect  {info.connect_url}"
    if "registry" in info.servers:
        yield f"  registry       {info.registry_url}"
    yield f"  secrets        {info.secrets_dir}"
    stack = "" if info.name == "default" else f" --stack {info.name}"
    yield f'  variables      eval "$(factfold stack env{stack} DATABASE)"'


def _table(described: dict[str, Any]) -> Iterator[str]:
    yield f"{'server':<10}{'state':<8}{'port':<7}{'process':<9}log"
    for server, row in described["servers"].items():
        yield f"{server:<10}{row['state']:<8}{row['port']:<7}{row['pid'] or '-':<9}{row['log']}"


def _added(log: Path) -> Iterator[str]:
    with log.open(encoding="utf-8", errors="replace") as file:
        file.seek(0, 2)
        while True:
            text = file.read()
            if text:
                yield text
            else:
                time.sleep(0.2)
