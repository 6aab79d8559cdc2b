"""`factfold new`: a running project in one command.

`factfold prepare`: what makes later starts shorter.

`factfold doctor`: what this machine has and lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import eventstore
from cdc.findings import Finding, Severity, errors
from eventstore.errors import FactfoldError, TopicMismatch
from eventstore.shown_urls import shown_url
from factfold import on_demand
from factfold.cli.cdc.connectors import brokers_at
from factfold.cli.events.store import existing_store, require_current
from factfold.cli.options import Memory, argument, option, setting
from factfold.cli.show import Out, answer, spinner
from factfold.scaffolding import create_project
from factfold.stack import delta_jars, spark_jars
from factfold.stack.artifacts import cached, check, missing
from factfold.stack.errors import StackError
from factfold.stack.java import require_java
from factfold.stack.ports import LOOPBACK, free_ports
from factfold.stack.postgres import installed_wheel
from factfold.stack.state import state_folder
from factfold.stack.versions import versions


def new(
    name: Annotated[str, argument("Name of the project and its package, such as shop.")],
    out: Out,
) -> None:
    """Create a project that runs without servers: code, tests, Makefile, settings.

    It is in the new folder NAME. `factfold stack export` and `factfold watch export` add images and monitoring.
    """
    here = Path.cwd()
    written = [str(file.relative_to(here)) for file in create_project(name, parent=here)]
    said = f"{len(written)} files in {name}. Next: cd {name} && make test && make demo"
    out.show({"project": name, "files": written}, said)


def prepare(
    out: Out,
    memory: Memory = "2g",
    offline: Annotated[bool, option("--offline", "Download nothing. Delta Lake may be left out.")] = False,
) -> None:
    """Load Spark's classes once: later starts take a third less.

    The classes take 200 MB in the virtual environment.
    """
    from factfold.rehearsal import rehearse  # declares views, which needs the packages of the extra spark

    jars = spark_jars() if offline and missing(versions().delta_jars) else [*spark_jars(), *delta_jars()]
    with spinner("Spark rehearses; half a minute, once"):
        archive = on_demand.make_class_archive(jars, rehearse, memory=memory)
    size = archive.stat().st_size
    out.show({"archive": archive, "bytes": size}, f"{archive}: {size / 1e6:,.0f} MB")


# PostgreSQL's tree, the jars and a year of flights in Kafka and PostgreSQL, with room to breathe.
_DISK_GB = 5
# Someone is waiting at a terminal.
_BROKER_SECONDS = 5.0


def doctor(
    out: Out,
    store: Annotated[str | None, setting("--store-url", "SQLAlchemy URL of an event store to look at.")] = None,
    schema: Annotated[str | None, setting("--store-schema", "The store's database schema.")] = None,
    kafka: Annotated[str | None, setting("--kafka-bootstrap-servers", "Brokers with the topics of that store.")] = None,
) -> None:
    """Check Java, disk, downloads, ports, an event store and its topics.

    Exit code 3 if something must be done.
    """
    findings = [_checked(name, check) for name, check in _CHECKS.items()]
    if store is not None:
        findings.append(_checked("store", lambda: _store(store, schema)))
        if kafka is not None and findings[-1].severity is Severity.OK:
            findings.append(_checked("topics", lambda: _topics(store, schema, kafka)))
    out.show(findings, _lines(findings), indent=2)
    answer(not errors(findings))


def _checked(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding.ok(name, check())
    except FactfoldError as failure:
        return Finding.error(name, failure.message, failure.remedy)


def _java() -> str:
    java = require_java()
    return f"Java {java.version} at {java.executable}"


def _disk() -> str:
    import shutil

    folder = next(parent for parent in (state_folder(), *state_folder().parents) if parent.exists())
    free = shutil.disk_usage(folder).free / 1e9
    if free < _DISK_GB:
        raise StackError(
            f"{free:.1f} GB are free at {folder}, {_DISK_GB} are required",
            remedy="free disk or set FACTFOLD_HOME",
        )
    return f"{free:.0f} GB free at {folder}"


def _downloads() -> str:
    pinned = versions()
    lacking = missing(pinned.artifacts)
    for artifact in pinned.artifacts:
        if artifact not in lacking:
            check(cached(artifact), expected=pinned.sha256.get(artifact.filename))
    here = len(pinned.artifacts) - len(lacking)
    later = f", {len(lacking)} will be fetched by the next `factfold stack up`" if lacking else ""
    return f"{here} files present and as their checksums say{later}"


def _postgres() -> str:
    return f"PostgreSQL in {installed_wheel()}"


def _ports() -> str:
    free_ports(["any"])
    return f"{LOOPBACK} accepts listeners"


def _store(url: str, schema: str | None) -> str:
    with existing_store(url, schema) as store:
        version, place = require_current(store), shown_url(store.engine.url)
    return f"version {version.installed} at {place}"


def _topics(url: str, schema: str | None, servers: str) -> str:
    """Compare the store's categories with their topics: partitions, which are fixed for life, policy, and owner."""
    settings = brokers_at(servers)
    with eventstore.SqlEventStore(url, schema=schema) as store:
        expected = [on_demand.event_topic(one.topic, partitions=one.partitions) for one in store.categories()]
        compared = on_demand.compare_topics(settings, expected, deadline=_BROKER_SECONDS)
        owners = on_demand.topic_owners(settings, [store])
    owners.require_own()
    if compared.mismatches:
        problem = "; ".join(mismatch.message for mismatch in compared.mismatches)
        remedies = dict.fromkeys(mismatch.remedy for mismatch in compared.mismatches)
        raise TopicMismatch(problem, remedy="; ".join(remedies), place=servers)
    later = f", {len(compared.missing)} not made yet: {', '.join(compared.missing)}" if compared.missing else ""
    several = "; ".join(
        f"{topic} has events of several sources ({', '.join(sorted(sources))})"
        for topic, sources in owners.sources.items()
        if len(sources) > 1
    )
    shared = f"; {several}: let readers name the one they mean (source=)" if several else ""
    return f"{len(expected) - len(compared.missing)} topics as their categories say{later}{shared}"


_CHECKS: dict[str, Callable[[], str]] = {
    "java": _java,
    "disk": _disk,
    "postgres": _postgres,
    "downloads": _downloads,
    "ports": _ports,
}


def _lines(findings: list[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{finding.severity:<5} {finding.check:<10} {finding.result}"
        if finding.remedy:
            yield f"      remedy: {finding.remedy}"
