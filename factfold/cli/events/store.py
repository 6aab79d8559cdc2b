"""`factfold store`: status, migrate, export, import, renumber, tenants, and what ends single streams.

`factfold erase` and `factfold keys`: subjects are forgotten, keys wrapped again.

`factfold relay`: run, status.
"""

from __future__ import annotations

import base64
import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import eventstore
from eventstore import STREAM_EXISTS, MasterKeys
from eventstore.erasure import OUT_OF_REACH
from eventstore.errors import NotFound, StoreNotPrepared
from eventstore.shown_urls import shown_url
from factfold import on_demand
from factfold.cli.keys import KeyStoreOption, MasterKeysOption, NamedKeys, load_key_store
from factfold.cli.options import Commands, Yes, argument, confirm, option, setting
from factfold.cli.running import Served, reached_settings, stop_on_signal
from factfold.cli.show import Out, answer, echo, late_bar

if TYPE_CHECKING:
    from eventstore import SqlEventStore
    from eventstore.erasure import Erasure, KeyStore
    from eventstore.identifiers import ExpectedVersion
    from eventstore.metrics import RelayMetrics
    from eventstore.store import Category, FenceStatus, StoreVersion

app = Commands("An event store and its tables.")

Database = Annotated[str, setting("--store-url", "SQLAlchemy URL of the store's database.")]
Schema = Annotated[
    str | None,
    setting("--store-schema", "The store's database schema (PostgreSQL). A tenant's is tenant_ and its name."),
]
Source = Annotated[str | None, setting("--store-source", "The store's CloudEvents source, such as /shop: its service.")]
TopicPrefix = Annotated[
    str | None, setting("--store-topic-prefix", "The prefix of the topics of new categories, such as a tenant's acme-.")
]
File = Annotated[Path, argument("The file.", dir_okay=False)]
Form = Annotated[Literal["jsonl", "parquet"] | None, option("--format", "Default: by the file's suffix, else jsonl.")]
Stream = Annotated[str, argument("The stream: its category, a dash, the id.")]
Version = Annotated[
    int | None,
    option("--expected", "Its last version as you know it. Default: the version at your confirmation.", min=0),
]


@dataclass(frozen=True)
class Store:
    """Where an event store is."""

    database: Database
    schema: Schema = None

    def opened(self, keys: KeyStore | MasterKeys | None = None, *, source: str | None = None) -> SqlEventStore:
        """Open a store that a command looks into; StoreNotPrepared for a SQLite file that is not there."""
        return existing_store(self.database, self.schema, keys=keys, source=source)

    def made(self, keys: KeyStore | MasterKeys | None = None, **more: str | None) -> SqlEventStore:
        """Open a store whose tables the command may create."""
        return _open(self.database, self.schema, keys, **more)


@dataclass(frozen=True)
class MaybeStore:
    """Where an event store is, for a command that can do without."""

    database: Annotated[str | None, setting("--store-url", "SQLAlchemy URL of the store's database.")] = None
    schema: Schema = None


@app.command()
def status(store: Store, out: Out) -> None:
    """Show the version of the tables, the categories, and what readers wait for. Exit code 3 if not up to date."""
    with store.opened() as opened:
        standing = store_standing(opened)
    fields = {"categories": standing.categories, "fence": standing.fence}
    out.show(asdict(standing.version) | fields, _lines(standing.version, standing.categories, standing.fence))
    answer(standing.version.is_current)


@dataclass(frozen=True, slots=True)
class StoreStanding:
    """The tables' version, and once they are up to date the categories, and what readers wait for."""

    version: StoreVersion
    categories: Sequence[Category] = ()
    fence: FenceStatus | None = None


def store_standing(store: SqlEventStore) -> StoreStanding:
    """Look at a store, for the command and for the console."""
    version = store.version()
    if not version.is_current:
        return StoreStanding(version)
    return StoreStanding(version, tuple(store.categories()), store.fence())


def require_current(store: SqlEventStore) -> StoreVersion:
    """Return the version of a store's tables. Raises StoreNotPrepared if this release or this cluster needs another."""
    version, place = store.version(), shown_url(store.engine.url)
    if not version.is_current:
        raise StoreNotPrepared(
            f"the tables are at version {version.installed or 'none'}, this release needs {version.newest}",
            remedy="factfold store migrate",
            place=place,
        )
    if ahead := store.ahead_of_cluster():
        raise StoreNotPrepared(
            f"events are {ahead:,} transactions ahead of this cluster: they came from another one, "
            "and readers do not see them yet",
            remedy="factfold store renumber",
            place=place,
            code="store-restored",
        )
    return version


def _lines(version: StoreVersion, categories: Sequence[Category], fence: FenceStatus | None) -> Iterator[str]:
    yield f"version {version.installed or 'none'}, this release needs {version.newest}"
    for one in categories:
        yield f"category {one.name}: topic {one.topic}, {one.partitions} partitions"
    if fence is not None:
        age = "how long this user may not see" if fence.age is None else f"{fence.age:,.1f} s"
        yield f"fence: {fence.waiting:,} events wait, {age}" + (f", for {fence.holder}" * bool(fence.holder))


@app.command()
def migrate(
    store: Store,
    dry_run: Annotated[bool, option("--dry-run", "Print the SQL and execute nothing.")] = False,
) -> None:
    """Create the tables, or bring those of an older release up to date."""
    with store.made() as opened:
        if dry_run:
            echo(opened.migration_sql(), nl=False)
            return
        before = opened.version()
        opened.create_tables()
        after = opened.version()
    was = "" if before.installed == after.installed else f", was {before.installed or 'none'}"
    echo(f"version {after.installed}{was}")


@app.command("export")
def export_(
    file: File,
    store: Store,
    form: Form = None,
    category: Annotated[str | None, option("--category", "Only this one's events.")] = None,
    with_keys: Annotated[
        bool, option("--with-keys", "The wrapped keys of personal fields too. No erasure reaches the file.")
    ] = False,
) -> None:
    """Write events, schemas and categories to a file, as JSON lines or as Parquet."""
    with store.opened() as opened, late_bar("exporting") as tell:
        done = opened.export_file(file, format=form, category=category, keys=with_keys, on_progress=tell)
    keys = f", {done.keys:,} keys" if with_keys else ""
    echo(f"{done.events:,} events of {done.categories:,} categories, {done.schemas:,} schemas{keys}")


@app.command("import")
def import_(
    file: File,
    store: Store,
    named: NamedKeys,
    form: Form = None,
    with_keys: Annotated[
        bool, option("--with-keys", "Take over the keys of personal fields. Needs the master keys.")
    ] = False,
    with_erasures: Annotated[
        bool, option("--with-erasures", "Destroy the keys that the file says were destroyed. For good.")
    ] = False,
    with_topics: Annotated[
        bool, option("--with-topics", "Publish new categories to the topics that the file names.")
    ] = False,
    source: Source = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Store the events of an exported file. Repeated, it stores what is missing.

    Give the --store-source that the service opens its store with: it names the topics of new categories.
    """
    opening = store.made(named.keys, source=source, topic_prefix=topic_prefix)
    with opening as opened, late_bar("importing") as tell:
        opened.create_tables()
        done = opened.import_file(
            file, format=form, keys=with_keys, erasures=with_erasures, topics=with_topics, on_progress=tell
        )
    taken = f", {done.keys:,} keys taken over" if with_keys else ""
    archived = f", {done.archived:,} streams archived" if done.archived else ""
    echo(f"{done.imported:,} events imported, {done.present:,} were there{taken}{archived}")


@app.command()
def renumber(
    store: Store,
    published: Annotated[bool, option("--published", "The outbox connector only warns of updates.")] = False,
) -> None:
    """Number the events of a restored store by the transaction ids of its new cluster."""
    with store.opened() as opened:
        by = opened.renumber(published=published)
    echo(f"renumbered by {by:,}" if by else "nothing to do")


@app.command()
def tenants(database: Database, out: Out) -> None:
    """List the tenants that have a store in a database. Exit code 3 if the tables of one are not up to date."""
    engine = on_demand.engine_for(database)
    versions = {tenant: eventstore.tenant_store(engine, tenant).version() for tenant in eventstore.tenants(engine)}
    engine.dispose()
    out.show(versions, (f"{tenant}: version {one.installed or 'none'}" for tenant, one in versions.items()))
    answer(all(version.is_current for version in versions.values()))


@app.command()
def archive(stream: Stream, store: Store, out: Out, expected: Version = None, yes: Yes = False) -> None:
    """Close a finished stream: it can be read, and takes no events until it is unarchived."""
    with store.opened() as opened:
        head = opened.head(stream)
        if head is not None:
            confirm(f"Archive {stream!r} at version {head}", yes=yes)
        opened.archive_stream(stream, expected=_seen(head, expected))
        version = opened.head(stream)
    fields = {"stream": stream, "archived": True, "version": version}
    out.show(fields, f"{stream}: archived at version {version}")


@app.command()
def unarchive(stream: Stream, store: Store, out: Out, yes: Yes = False) -> None:
    """Let an archived stream take events again."""
    with store.opened() as opened:
        was = opened.is_archived(stream)
        if was:
            confirm(f"Let {stream!r} take events again", yes=yes)
        opened.unarchive_stream(stream)
    fields = {"stream": stream, "archived": False, "changed": was}
    out.show(fields, f"{stream}: {'takes events again' if was else 'was not archived'}")


@app.command()
def delete(stream: Stream, store: Store, out: Out, expected: Version = None, yes: Yes = False) -> None:
    """Delete a stream for good, from store, topic and views. Its name cannot be used again."""
    with store.opened() as opened:
        head = opened.head(stream)
        if head is not None:
            confirm(f"Delete {stream!r} and its {head + 1:,} events? It cannot be undone", yes=yes)
        count = opened.delete_stream(stream, expected=_seen(head, expected))
    result = f"{count:,} events deleted" if count else "was deleted before"
    out.show({"stream": stream, "deleted": count}, f"{stream}: {result}")


def _seen(head: int | None, expected: int | None) -> ExpectedVersion:
    """What is expected of the stream: what was said, else what was shown; the store refuses one without events."""
    if expected is not None:
        return expected
    return STREAM_EXISTS if head is None else head


def existing_store(database: str, schema: str | None, **more: Any) -> SqlEventStore:
    """Open a store that a command looks into; StoreNotPrepared for a SQLite file that is not there."""
    url = on_demand.url_of(database)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        raise StoreNotPrepared(
            "there is no such file",
            remedy="check the URL, or create the store: factfold store migrate",
            place=url.database,
        )
    return _open(database, schema, **more)


def _open(
    database: str, schema: str | None, keys: KeyStore | MasterKeys | None = None, *, source: str | None = None,
    topic_prefix: str | None = None,
) -> SqlEventStore:  # fmt: skip
    named = on_demand.DEFAULT_SOURCE if source is None else source
    return eventstore.SqlEventStore(database, schema=schema, keys=keys, source=named, topic_prefix=topic_prefix)


keys = Commands("Keys of personal fields.")


def erase(
    subject: Annotated[str, argument("The subject: the id that the events' personal fields name.")],
    store: Store,
    out: Out,
    key_store: KeyStoreOption = None,
    yes: Yes = False,
    allow_unknown: Annotated[
        bool, option("--allow-unknown", "Exit with 0 if the store does not know the subject.")
    ] = False,
) -> None:
    """Destroy the keys of a person, for good.

    It asks first, unless --yes is given. Personal fields of the subject's events then show placeholders. It prints
    what that does not reach. An erasure can be repeated.

    Exit code 1 if the store has neither a key nor a stream of the subject.
    """
    keys = None if key_store is None else load_key_store(key_store)
    confirm(f"Destroy the keys of {subject!r}? It cannot be undone", yes=yes)
    with store.opened(keys) as opened:
        done = opened.erase(subject)
    if not (done.keys or done.streams or allow_unknown):
        raise NotFound(
            f"no key and no stream of subject {subject!r} is in this store",
            remedy="check the id and the store, or add --allow-unknown",
            code="subject-unknown",
        )
    fields = {name: getattr(done, name) for name in ("keys", "streams", "snapshots", "left")}
    out.show({"subject": subject, **fields, "out_of_reach": OUT_OF_REACH}, _erased(subject, done))


def _erased(subject: str, done: Erasure) -> Iterator[str]:
    yield f"{subject}: {done.keys} keys destroyed, {len(done.streams)} streams, {done.snapshots} snapshots dropped"
    if done.left:
        yield "left in the database, for you to remove:"
        yield from (f"  - {place}" for place in done.left)
    yield "out of reach, for you to erase:"
    yield from (f"  - {place}" for place in OUT_OF_REACH)


@keys.command()
def new(
    name: Annotated[str | None, option("--name", "Its name. Default: the current date.")] = None,
) -> None:
    """Make a master key and print it, to be put first in FACTFOLD_MASTER_KEYS. Keep it out of shells' histories."""
    echo(f"{name or datetime.now(UTC).date().isoformat()}:{base64.b64encode(os.urandom(32)).decode('ascii')}")


@keys.command()
def rotate(store: Store, master_keys: MasterKeysOption, out: Out) -> None:
    """Wrap every data key by the first master key. The other master keys can then be removed."""
    with eventstore.SqlKeyStore(store.database, MasterKeys.parse(master_keys), schema=store.schema) as opened:
        rotated = opened.rotate()
    out.show({"rotated": rotated}, f"{rotated:,} keys wrapped again")


relay = Commands("The event store published to Kafka without Kafka Connect.")


@relay.command("run")
def run_relay(
    store: Store,
    served: Served,
    out: Out,
    once: Annotated[bool, option("--once", "Stop when the topics hold every event.")] = False,
    ignored_slots: Annotated[
        list[str] | None, option("--ignore-slot", "A replication slot that is no outbox connector's. May be repeated.")
    ] = None,
) -> None:
    """Publish events and schemas until a signal comes. Start it twice, and the second one stands by."""
    stop = stop_on_signal()
    settings = reached_settings(without_kafka="factfold up lets subscriptions read the event store")
    # What is imported by now stays to the end; looking through it again and again took 6 of 20 µs an event.
    gc.freeze()
    with store.made() as opened:

        def look(metrics: RelayMetrics) -> None:
            metrics.behind(on_demand.relay_status(opened, eventstore.Settings()))

        with served.metrics(lambda: on_demand.RelayMetrics(store.schema or "store"), look) as metrics:
            publisher = on_demand.Relay(opened, settings, ignored_slots=ignored_slots or (), metrics=metrics)
            report = publisher.run(stop=stop, once=once, on_state=out.state)
    out.counts(report)


@relay.command("status")
def status_of_relay(store: Store, out: Out) -> None:
    """Show which relay publishes, and how many events each topic lacks. Exit code 3 if no relay publishes."""
    with store.made() as opened:
        status = on_demand.relay_status(opened, eventstore.Settings())
    categories = [
        {"category": one.category, "topic": one.topic, "waiting": one.events, "seconds": round(one.seconds, 3)}
        for one in status.waiting
    ]
    lines = (f"{one.topic}: {one.events:,} events wait, {one.seconds:,.1f} s" for one in status.waiting)
    out.show({"leader": status.leader, "categories": categories}, [status.leader or "nobody publishes", *lines])
    answer(status.leader is not None)
