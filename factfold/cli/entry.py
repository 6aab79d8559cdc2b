"""The command's root: groups of commands, and one way of showing an error."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from eventstore.errors import DeclarationError
from factfold.cli.options import with_options
from factfold.cli.running import log_to_stderr
from factfold.cli.show import DIFFERS, echo, ended, typed_failures
from factfold.settings_file import use_settings_file


class Place(NamedTuple):
    """Where a command or a group is: a module of this package, and a name in it, which may be the command's own."""

    name: str
    help: str
    module: str
    attribute: str | None = None


class Deferred(TyperCommand):
    """What stands for a command in the list. It becomes the command itself once its arguments are parsed."""

    def __init__(self, place: Place, panel: str) -> None:
        super().__init__(place.name, help=place.help, rich_help_panel=panel)
        self._place = place

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments as the command itself does; its context runs or completes it."""
        return self.loaded().make_context(info_name, args, parent, **extra)

    def loaded(self) -> Any:
        """Import the module, and return the command or the group."""
        found = getattr(import_module(f"factfold.cli.{self._place.module}"), self._place.attribute or self._place.name)
        around = typer.Typer()
        around.callback()(_nothing)
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=self._place.name)
        else:
            around.command(self._place.name)(with_options(found))
        group: Any = typer.main.get_command(around)
        return _plain(group.commands[self._place.name])


def _plain(command: Any) -> Any:
    """Let the help of a command, and of those in it, show options as people write them: --json, and no <bool>."""
    parameters = command.get_params

    def get_params(context: Any) -> Any:
        found = parameters(context)
        for one in found:
            if one.param_type_name == "argument":
                one.metavar = one.metavar or one.name.upper()
                one.get_usage_pieces = partial(_placeholders, one)
            elif one.is_flag:
                one.metavar = ""
        return found

    command.get_params = get_params
    for inner in getattr(command, "commands", {}).values():
        _plain(inner)
    return command


def _placeholders(argument: Any, context: Any) -> list[str]:
    name = argument.metavar + "…" * (argument.nargs == -1)
    return [name if argument.required else f"[{name}]"]


def _nothing() -> None: ...


# The list of commands by what they are for. A new command or group is one entry: its name, its line in the list, its
# module and its function there.
_PLACES: Final = {
    "Start": (
        Place("new", "Create a project that runs without servers: code, tests, Makefile, settings.", "service.start"),
        Place("doctor", "Check Java, disk, downloads, ports, an event store and its topics.", "service.start"),
        Place("prepare", "Load Spark's classes once: later starts take a third less.", "service.start"),
        Place("stack", "PostgreSQL, Kafka and Kafka Connect on this machine, without Docker.", "service.stack", "app"),
    ),
    "Develop": (
        Place("dev", "Build a group, verify and follow it, again after each change of a file.", "service.develop"),
        Place("up", "Run all parts of a service together, until a signal comes.", "service.develop"),
        Place(
            "preflight",
            "Check whether this code is safe to deploy on this data.",
            "service.preflight",
        ),
        Place("decide", "Recorded commands: would this code decide them as before?", "service.decide", "app"),
        Place("schema", "Schemas: can the code read what was written?", "events.schema", "app"),
    ),
    "Operate": (
        # With the commands of views.generations and views.projections.
        Place("projections", "Views: build them, keep them up to date, prove them.", "views.past", "app"),
        Place("branches", "Branches: put each record of a topic into exactly one topic.", "views.topics", "branches"),
        Place("archive", "Topics in columns next to Kafka, from which views are rebuilt.", "views.topics", "archive"),
        Place("subscriptions", "Handlers that react to events.", "events.subscriptions", "app"),
        Place("processes", "Process managers: what runs, what waits, what is stuck.", "service.processes", "app"),
        Place("relay", "The event store published to Kafka without Kafka Connect.", "events.store", "relay"),
        # With the commands of cdc.connectors and cdc.operate.
        Place("cdc", "Connectors that capture row changes and publish events.", "cdc.compare", "app"),
        Place("store", "An event store and its tables.", "events.store", "app"),
        Place("keys", "Keys of personal fields.", "events.store", "keys"),
        Place("erase", "Destroy the keys of a person, for good.", "events.store"),
    ),
    "Look": (
        Place("console", "Show a service in a browser: what runs, what is behind and why.", "service.watch"),
        Place("trace", "Show what a conversation led to, each step below its cause.", "events.events"),
        Place("events", "Events: look at them, and deliver some again.", "events.events", "app"),
        Place("streams", "Streams: their events and their states.", "events.events", "streams"),
        Place("watch", "Metrics, and files for Prometheus and Grafana.", "service.watch", "app"),
    ),
    "Repair": (
        Place("dlq", "Dead letters: records and events that were given up.", "letters", "app"),
        Place("schedule", "Commands that are sent later: list, retry, cancel.", "service.processes", "schedule"),
    ),
}


class _Commands(TyperGroup):
    """The commands; a missing option that is a setting, too, is an error with a remedy like any other."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, places in _PLACES.items():
            for place in places:
                self.add_command(Deferred(place, panel))
        _plain(self)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        try:
            with typed_failures():
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
    """Return the program. It imports the module of a command when that command runs."""
    app = typer.Typer(
        cls=_Commands,
        help="Event sourcing and change data capture, folded into materialized views.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def whole_program() -> Any:
    """Return the program with each command imported, for those who read its options."""
    program: Any = typer.main.get_command(application())
    program.commands = {name: deferred.loaded() for name, deferred in program.commands.items()}
    return program


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        echo(f"factfold {version('factfold')}")
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
    log_to_stderr()


def main() -> None:
    """Run the command line; a FactfoldError is shown as cause, remedy and place, with exit code 1."""
    debug = _takes_debug(sys.argv)
    code: Any
    try:
        code = ended(application(), debug=debug, as_json="--json" in _before_dashes(sys.argv))
    except SystemExit as left:
        code = left.code
    if code in (0, None, DIFFERS) and (session := sys.modules.get("projections.spark.session")) is not None:
        session.archive_behind([sys.executable, "-m", "factfold", "prepare", "--offline"])
    sys.exit(code)


def _before_dashes(arguments: list[str]) -> list[str]:
    return arguments[: arguments.index("--") if "--" in arguments else len(arguments)]


def _takes_debug(arguments: list[str]) -> bool:
    """Take `--debug` out of the arguments before `--`: every command has it, and none has to declare it."""
    given = _before_dashes(arguments)
    options = [argument for argument in given if argument != "--debug"]
    arguments[: len(given)] = options
    return len(options) < len(given)
