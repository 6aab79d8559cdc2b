"""The versions of everything a demonstration ran on."""

from __future__ import annotations

from importlib.metadata import version

from factfold.stack.versions import versions


def running_versions() -> dict[str, str]:
    """Servers from the versions file, packages from what is installed."""
    declared = versions()
    servers = {"postgres": declared.postgres, "kafka": declared.kafka, "debezium": declared.debezium}
    packages = ("factfold", "pyspark", "confluent-kafka", "fastavro", "SQLAlchemy")
    return servers | {package.lower(): version(package) for package in packages}
