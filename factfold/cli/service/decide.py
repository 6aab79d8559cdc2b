"""`factfold decide again`: recorded commands decided by the code of this folder, and nothing written."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from eventstore.errors import DeclarationError, KeysMissing
from factfold import on_demand
from factfold.cli.definitions import complete_package, find_definitions
from factfold.cli.events.entries import parse_moment
from factfold.cli.events.store import Store
from factfold.cli.keys import NamedKeys
from factfold.cli.options import Commands, argument, option
from factfold.cli.show import Out, answer, as_line, progress
from factfold.discovery import service_packages

if TYPE_CHECKING:
    from eventstore import Aggregate, SqlEventStore
    from eventstore.inspection.deciding import DecidedAgain

app = Commands("Recorded commands: would this code decide them as before?")


@app.command()
def again(
    store: Store,
    named: NamedKeys,
    out: Out,
    targets: Annotated[
        list[str] | None,
        argument(
            "The code: a package, a module, or an aggregate as module:name. Default: this folder's packages.",
            "PACKAGE", autocompletion=complete_package,
        ),
    ] = None,
    categories: Annotated[list[str] | None, option("--category", "Only this category. May be repeated.")] = None,
    since: Annotated[
        str | None, option("--since", "Not before this: a time with its zone, or how long ago: 15m, 2h.")
    ] = None,
    ignore: Annotated[
        list[str] | None,
        option("--ignore", "A field not to compare, such as order.placed.at. May be repeated."),
    ] = None,
) -> None:  # fmt: skip
    """Decide recorded commands again, each on the state before its events. Exit code 3 if one is decided otherwise.

    Services record commands with keep_commands=True. Nothing is written.
    """
    with redirect_stdout(sys.stderr):  # what modules print when they are imported
        kinds = _chosen(targets or service_packages(Path()), categories or [])
    moment = None if since is None else parse_moment(since)
    with store.opened(named.keys) as opened, progress("deciding again") as tell:
        _require_fields(ignore or (), kinds, opened)
        more: dict[str, Any] = {"since": moment, "ignore": ignore or (), "on_progress": tell}
        found: dict[str, DecidedAgain] = {}
        unread: dict[str, str] = {}
        for kind in kinds:
            try:
                found[kind.category] = on_demand.decide_again(opened, kind, **more)
            except KeysMissing as error:
                unread[kind.category] = f"{error.message} ({error.remedy})"
    same = not unread and not any(one.findings for one in found.values())
    out.show({"same": same, "categories": found, "unread": unread}, _lines(found, unread), indent=2)
    answer(same)


def _chosen(targets: list[str], categories: list[str]) -> list[type[Aggregate]]:
    """The aggregates that the code has, of these categories; DeclarationError for a category without one."""
    definitions = find_definitions(targets)
    known = {kind.category: kind for kind in definitions.aggregates.values()}
    if missing := [name for name in categories if name not in known] or ([] if known else ["any category"]):
        broken = "".join(f", and {one} cannot be imported: {cause}" for one, cause in definitions.failures.items())
        raise DeclarationError(
            f"no aggregate of {missing[0]} is declared in {', '.join(targets) or 'this folder'}{broken}",
            remedy=f"name one of {', '.join(known)}" if known else "name the package of the service",
            code="unknown-aggregate",
        )
    return [kind for name, kind in sorted(known.items()) if not categories or name in categories]


def _require_fields(ignored: Iterable[str], kinds: Iterable[type[Aggregate]], store: SqlEventStore) -> None:
    """Raise DeclarationError for a field that no event has, of the code or stored."""
    schemas = [(kind.name, kind.schema) for one in kinds for kind in one.event_types.values()]
    schemas += [(one.name, one.schema) for one in store.schemas()]
    known = {f"{name}.{field['name']}" for name, schema in schemas for field in schema["fields"]}
    for name in ignored:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise DeclarationError(
                f"--ignore {name}: no event has this field",
                remedy=f"write {near[0]}" if near else "write an event type and one of its fields: order.placed.at",
                code="ignored-field-unknown",
            )


def _lines(found: dict[str, DecidedAgain], unread: dict[str, str]) -> Iterator[str]:
    yield from (f"{category}: not decided: {cause}" for category, cause in unread.items())
    for category, again in found.items():
        for one in again.findings:
            yield f"{one.stream}@{one.version} {one.command} {one.outcome}{one.reason and f': {one.reason}'}"
            for change in one.differences:
                name = change.event if change.field is None else f"{change.event}.{change.field}"
                yield f"  {name}: {as_line(change.recorded)} was recorded, {as_line(change.decided)} now"
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(again.counts.items()))
        yield f"{category}: {counts or 'no commands'}, {again.not_recorded:,} events without a recorded command"
