"""`factfold cdc prepare` on real servers: from an empty PostgreSQL to running connectors, and again and again."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine
from typer.testing import CliRunner, Result

from cdc import ConnectClient, drop_slot
from cdc.errors import SourceNotReady
from eventstore.errors import FactfoldError
from eventstore.kafka.admin import cleanup_policies
from eventstore.settings import Settings
from factfold.cli.entry import application
from factfold.scaffolding import create_project
from factfold.stack import LocalStack
from tests.unit.test_documentation import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "prepare-a-service.md"

STEPS = ["role", "database", "database", "store", "tables", "aggregates", "password", "source", "source"]
STREAMS = ["topics", "connector", "topics", "connector"]


@dataclass
class Project:
    """A new project and the servers that it is prepared on."""

    name: str
    stack: LocalStack
    client: ConnectClient
    superuser: str
    """The superuser's URL of the project's database."""

    def prepare(self, *options: str, admin: bool = True, url: str | None = None) -> Result:
        """Run the command in the project's folder with the settings of `factfold stack env`."""
        info = self.stack.info
        variables = {
            "FACTFOLD_STACK": info.name,
            "FACTFOLD_STORE_SOURCE": f"/{self.name}",
            "FACTFOLD_SOURCE_URL": url or self.superuser,
            "FACTFOLD_VIEWS_URL": f"{url or self.superuser}_views",
            "FACTFOLD_CONNECT_URL": info.connect_url,
            "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": info.bootstrap_servers,
            **({"FACTFOLD_ADMIN_URL": info.postgres.url()} if admin else {}),
        }
        return CliRunner().invoke(application(), [*self.words(), *options], env=variables)

    def words(self) -> list[str]:
        """The command as the project's Makefile has it."""
        recipe = (
            Path("Makefile").read_text("utf-8").partition("$(PYTHON) -m factfold cdc prepare")[2].partition("\n\n")[0]
        )
        return shlex.split("cdc prepare" + recipe.replace("\\\n", ""))

    def secret(self) -> Path:
        """The secrets file of the Connect worker."""
        return self.stack.info.secrets_dir / f"{self.name}.properties"

    def execute(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements as the superuser, and return the rows of the last."""
        engine = create_engine(self.stack.info.postgres.url(database), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                for statement in statements:
                    found = connection.exec_driver_sql(statement)
                return list(found) if found.returns_rows else []
        finally:
            engine.dispose()


@pytest.fixture
def project(
    stack: LocalStack, connect: ConnectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    """A project of its own name: databases, roles, topics and connectors are called after it."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    create_project(name, parent=tmp_path)
    monkeypatch.chdir(tmp_path / name)
    Path("factfold.toml").unlink()  # a command that is run in this process would leave its settings behind
    yield Project(name, stack, connect, stack.info.postgres.url(name))
    for connector in connect.connectors():
        if connector.startswith(name):
            connect.delete(connector)
    _drop_slots(create_engine(stack.info.postgres.url()), name)


def _drop_slots(engine: Engine, name: str) -> None:
    with engine.connect() as connection:
        slots = connection.exec_driver_sql("SELECT slot_name FROM pg_replication_slots WHERE database = %s", (name,))
        names = [slot for (slot,) in slots]
    for slot in names:
        drop_slot(engine, slot)
    engine.dispose()


def lines(done: Result) -> list[tuple[str, str]]:
    """The mark and the step of each line."""
    return [(line[0], line.split()[1]) for line in done.stdout.splitlines() if line[0] in "✓=+?✗"]


def test_an_empty_server_becomes_a_running_service_and_a_second_run_changes_nothing(project):
    planned = project.prepare("--dry-run")
    assert planned.exit_code == 3
    assert {mark for mark, _ in lines(planned)} <= set("=+?")
    assert project.execute(f"SELECT 1 FROM pg_database WHERE datname = '{project.name}'") == []
    assert not project.secret().exists()

    first = project.prepare()
    assert first.exit_code == 0, first.output
    assert [step for _, step in lines(first)] == STEPS + STREAMS
    assert [mark for mark, _ in lines(first)] == ["="] + ["✓"] * 12  # the superuser is there

    shown = next(block.lines for block in blocks(PAGE) if block.kind == "text")
    assert _as_on_the_page(first.stdout, project.name) == [line.replace("factfold.schemas, ", "") for line in shown]

    again = project.prepare()
    assert [mark for mark, _ in lines(again)] == ["="] * 13
    assert project.prepare("--dry-run").exit_code == 0

    statuses = [project.client.status(f"{project.name}_{one}") for one in ("outbox", "tables")]
    assert all(status.running for status in statuses)
    policies = cleanup_policies(
        Settings.for_broker(project.stack.info.bootstrap_servers),
        [f"{project.name}.order", f"{project.name}.public.customers", "factfold.schemas"],
    )
    assert set(policies.values()) == {"compact"}


def _as_on_the_page(printed: str, name: str) -> list[str]:
    """The output for a project `shop` whose views are in its own database; the schemas topic may be there already."""
    text = printed.replace(name, "shop").replace("factfold.schemas, ", "")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:29097", re.sub(r"in \S*/secrets/", "in …/secrets/", text))
    return [line for line in text.splitlines() if not line.startswith("✓ database shop_views")]


def test_no_output_has_a_password_and_the_secrets_file_is_its_owners_alone(project):
    outputs = [project.prepare(*options) for options in (["--dry-run"], ["--json"], [], ["--dry-run", "--json"])]
    secret = project.secret().read_text("latin-1").partition("=")[2].strip()
    assert len(secret) > 20
    for password in (secret, project.stack.info.postgres.password):
        assert all(password not in done.output for done in outputs)
    assert project.secret().stat().st_mode & 0o777 == 0o600


def test_without_the_rights_it_prints_the_sql_that_an_administrator_runs(project):
    owner = project.superuser.replace("//postgres:", "//owner_of_it:").replace(
        project.stack.info.postgres.password, "x1"
    )
    missing = project.prepare(admin=False, url=owner)
    assert missing.exit_code == 1
    project.execute("DROP ROLE IF EXISTS owner_of_it", "CREATE ROLE owner_of_it LOGIN PASSWORD 'x1'")

    missing = project.prepare(admin=False, url=owner)
    assert lines(missing) == [("✗", "database")]
    assert isinstance(missing.exception, SourceNotReady)
    project.execute(*_sql(missing))
    project.execute(f'CREATE DATABASE "{project.name}_views" OWNER owner_of_it')

    refused = project.prepare(admin=False, url=owner)
    assert lines(refused)[-1] == ("✗", "source")
    assert _sql(refused)[0] == f'CREATE ROLE "{project.name}_cdc" LOGIN REPLICATION'
    assert f'\\password "{project.name}_cdc"' in refused.stdout
    project.execute(*_sql(refused), database=project.name)
    password = project.secret().read_text("latin-1").partition("=")[2].strip()
    project.execute(f"ALTER ROLE \"{project.name}_cdc\" PASSWORD '{password}'")
    assert project.prepare(admin=False, url=owner).exit_code == 0


def _sql(done: Result) -> list[str]:
    """The statements of the step that failed."""
    indented = [line.strip() for line in done.stdout.splitlines() if line.startswith("    ") and line.endswith(";")]
    return [line.removesuffix(";") for line in indented]


def test_an_administrator_creates_the_services_own_login_and_its_databases(project):
    url = project.superuser.replace("//postgres:", f"//{project.name}:").replace(
        project.stack.info.postgres.password, "s3cret-of-the-shop"
    )
    done = project.prepare(url=url)
    assert done.exit_code == 0, done.output
    assert "s3cret" not in done.output
    owners = "SELECT datname, pg_get_userbyid(datdba) FROM pg_database WHERE starts_with(datname, '{}') ORDER BY 1"
    assert project.execute(owners.format(project.name)) == [
        (project.name, project.name),
        (f"{project.name}_views", project.name),
    ]
    assert project.execute(f"SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = '{project.name}'") == [
        (False, False)
    ]


def test_a_role_whose_password_is_nowhere_is_not_changed(project):
    project.execute(f"CREATE ROLE \"{project.name}_cdc\" LOGIN REPLICATION PASSWORD 'another'")
    done = project.prepare()
    assert isinstance(done.exception, FactfoldError)
    assert "--ask" in done.exception.remedy
    assert lines(done)[-1] == ("✗", "password")
    assert not project.secret().exists()
