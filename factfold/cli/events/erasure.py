"""`factfold erase` and `factfold keys`: subjects are forgotten, keys wrapped again."""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime
from typing import Annotated

import typer

import eventstore
from eventstore import MasterKeys
from eventstore.erasure import OUT_OF_REACH
from eventstore.errors import SubjectUnknown
from factfold.cli.events.store import Database, Json, Schema, existing_store
from factfold.cli.keys import KeyStoreOption, MasterKeysOption, load_key_store
from factfold.cli.shown_values import echo

keys = typer.Typer(help="Keys of personal fields.", no_args_is_help=True)


def erase(
    subject: Annotated[str, typer.Argument(help="The subject: the id that the events' personal fields name.")],
    database: Database,
    schema: Schema = None,
    key_store: KeyStoreOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Exit with 0 if the store does not know the subject.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Destroy the keys of a person, for good.

    It asks first, unless --yes is given. Personal fields of the subject's events then show placeholders. It prints
    what that does not reach. An erasure can be repeated.

    Exit code 1 if the store has neither a key nor a stream of the subject.
    """
    keys = None if key_store is None else load_key_store(key_store)
    if not yes:
        typer.confirm(f"Destroy the keys of {subject!r}? It cannot be undone", abort=True, err=True)
    with existing_store(database, schema, keys=keys) as store:
        done = store.erase(subject)
    if not (done.keys or done.streams or allow_unknown):
        raise SubjectUnknown(
            f"no key and no stream of subject {subject!r} is in this store",
            remedy="check the id and the store, or add --allow-unknown",
        )
    if as_json:
        fields = {"subject": subject, "keys": done.keys, "streams": list(done.streams), "snapshots": done.snapshots}
        echo(json.dumps({**fields, "left": list(done.left), "out_of_reach": OUT_OF_REACH}))
        return
    echo(f"{subject}: {done.keys} keys destroyed, {len(done.streams)} streams, {done.snapshots} snapshots dropped")
    if done.left:
        echo("left in the database, for you to remove:")
        for place in done.left:
            echo(f"  - {place}")
    echo("out of reach, for you to erase:")
    for place in OUT_OF_REACH:
        echo(f"  - {place}")


@keys.command()
def new(
    name: Annotated[str | None, typer.Option("--name", help="Its name. Default: the current date.")] = None,
) -> None:
    """Make a master key and print it, to be put first in FACTFOLD_MASTER_KEYS. Keep it out of shells' histories."""
    echo(f"{name or datetime.now(UTC).date().isoformat()}:{base64.b64encode(os.urandom(32)).decode('ascii')}")


@keys.command()
def rotate(database: Database, master_keys: MasterKeysOption, schema: Schema = None, as_json: Json = False) -> None:
    """Wrap every data key by the first master key. The other master keys can then be removed."""
    with eventstore.SqlKeyStore(database, MasterKeys.parse(master_keys), schema=schema) as store:
        rotated = store.rotate()
    echo(json.dumps({"rotated": rotated}) if as_json else f"{rotated:,} keys wrapped again")
