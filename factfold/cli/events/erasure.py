"""`factfold erase` and `factfold keys`: subjects are forgotten, keys wrapped again."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import eventstore
from eventstore import MasterKeys
from eventstore.erasure import OUT_OF_REACH
from eventstore.errors import NotFound
from factfold.cli.events.store import Store
from factfold.cli.keys import KeyStoreOption, MasterKeysOption, load_key_store
from factfold.cli.options import Commands, Yes, argument, confirm, option
from factfold.cli.show import Out, echo

if TYPE_CHECKING:
    from eventstore.erasure import Erasure

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
