"""A Confluent-compatible schema registry: Apicurio, its data in a file of its own."""

from __future__ import annotations

from factfold.stack.artifacts import registry_folder
from factfold.stack.java import require_java, server_options
from factfold.stack.kafka import properties_text
from factfold.stack.ports import LOOPBACK
from factfold.stack.processes import Launch, says_it_is_well
from factfold.stack.state import StackInfo
from factfold.stack.versions import versions


def prepare(info: StackInfo) -> None:
    """Write the configuration."""
    info.data("registry").mkdir(exist_ok=True)
    (info.folder / "registry.properties").write_text(properties_text(_properties(info)), "ascii")


def launch(info: StackInfo) -> Launch:
    """Say how to start the registry."""
    argv = [
        *(str(require_java().executable), "-Xmx512m", "-XX:+ExitOnOutOfMemoryError", *server_options()),
        *("-Djava.awt.headless=true", f"-Dfactfold.server={info.name}-registry"),
        f"-Dquarkus.config.locations={info.folder / 'registry.properties'}",
        *("-jar", str(registry_folder() / f"apicurio-registry-app-{versions().registry}-runner.jar")),
    ]
    return Launch(argv, cwd=info.folder, log=info.log("registry"))


def answers(info: StackInfo) -> bool:
    """Ask the registry's health, which is that of its storage too."""
    return says_it_is_well(info.ports["registry"], "/health/ready")


def common_properties() -> dict[str, object]:
    """Return what makes it the stack's registry, here and in docker/: everything but addresses and folders."""
    return {
        # In memory, which is its default, it would give the ids that events carry to other schemas after a restart.
        "apicurio.storage.kind": "sql",
        "apicurio.storage.sql.kind": "h2",
    }


def _properties(info: StackInfo) -> dict[str, object]:
    return {
        **common_properties(),
        # The registry needs no password, therefore it listens on this machine only.
        "quarkus.http.host": LOOPBACK,
        "quarkus.http.port": info.ports["registry"],
        "apicurio.datasource.url": f"jdbc:h2:file:{info.data('registry') / 'registry'}",
    }
