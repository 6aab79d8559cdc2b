"""The command's root: groups of commands, and one way of showing an error."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from eventstore.errors import DeclarationError, FactfoldError
from factfold.cli import (
    archive,
    branches,
    cdc_prepare,
    console,
    dev,
    dlq,
    doctor,
    erasure,
    events,
    histories,
    new,
    prepare,
    processes,
    relay,
    schedule,
    service_schema,
    stack,
    stream_states,
    streams,
    subscriptions,
    trace,
    up,
    watch,
)
from factfold.cli.failures import show, show_traceback
from factfold.settings_file import use_settings_file


class _Commands(TyperGroup):
    """The commands; a missing option that is a setting, too, is an error with a remedy like any other."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            variable = getattr(error.param, "envvar", None)
            if error.param is None or error.message or not variable:
                raise
            option = max(error.param.opts, key=len)
            raise DeclarationError(
                f"the option {option} is missing",
                remedy=f"give it, or set {variable} ({variable.removeprefix('FACTFOLD_').lower()} in factfold.toml)",
            ) from error


def application() -> typer.Typer:
    """Put the groups together; their modules import at the top what is quick and the rest when they run."""
    app = typer.Typer(
        cls=_Commands,
        help="Event sourcing and change data capture, folded into materialized views.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    # A new group is one line: a module of this package with an `app`.
    app.add_typer(stack.app, name="stack")
    app.add_typer(cdc_prepare.app, name="cdc")  # with the commands of cdc, cdc_operate, cdc_signals and cdc_compare
    app.add_typer(histories.app, name="projections")  # with the commands of projections and generations
    app.add_typer(archive.app, name="archive")
    app.add_typer(branches.app, name="branches")
    app.add_typer(subscriptions.app, name="subscriptions")
    app.add_typer(processes.app, name="processes")
    app.add_typer(schedule.app, name="schedule")
    app.add_typer(dlq.app, name="dlq")
    app.add_typer(service_schema.app, name="schema")  # with the commands of schema
    app.add_typer(relay.app, name="relay")
    app.add_typer(streams.app, name="store")  # store's own, with the commands for single streams
    app.add_typer(erasure.keys, name="keys")
    app.add_typer(events.app, name="events")
    app.add_typer(stream_states.app, name="streams")
    app.add_typer(watch.app, name="watch")
    app.command("new")(new.new)
    app.command("console")(console.console)
    app.command("dev")(dev.dev)
    app.command("up")(up.up)
    app.command("trace")(trace.trace)
    app.command("erase")(erasure.erase)
    app.command("doctor")(doctor.doctor)
    app.command("prepare")(prepare.prepare)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"factfold {version('factfold')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error, too. Goes anywhere in a command.")
    ] = False,
) -> None:
    """Event sourcing and change data capture, folded into materialized views."""
    use_settings_file()


def main() -> None:
    """Run the command line; a FactfoldError is shown as cause, remedy and place, with exit code 1."""
    debug = _takes_debug(sys.argv)
    try:
        application()()
    except FactfoldError as failure:
        if debug:
            show_traceback(failure)
        show(failure)
        sys.exit(1)


def _takes_debug(arguments: list[str]) -> bool:
    """Take `--debug` out of the arguments before `--`: every command has it, and none has to declare it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [argument for argument in arguments[:end] if argument != "--debug"]
    arguments[:end] = options
    return len(options) < end
