"""The page of the `factfold` command, from the program itself: `python -m docs.commands_page` writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from factfold.cli.entry import whole_program
from factfold.settings_file import SECRETS

PAGE = Path(__file__).parent / "reference" / "commands.md"
KINDS = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}
HEAD = """\
# The `factfold` command

`python -m docs.commands_page` writes this page from the program. `factfold COMMAND --help` shows the same in a
terminal. Options go anywhere behind a command. `--debug` shows the traceback of an error.

[Reference](README.md) · [JSON output and exit codes](json-output.md)

## Settings

A setting has one name: option, variable and key in [`factfold.toml`](../how-to/start-a-project.md) are alike. An option
that is not given takes its value from the variable.

"""
SHARED_HEAD = """
## Shared arguments and options

These mean the same in several commands. A command names such options in one line, with their default there. `--json`
prints JSON. Commands without it: {without}.

"""
JSON = "--json"  # nearly all commands have it
AT_LEAST = 4  # commands that have an option with one meaning


def page() -> str:
    """Return the page as the program is now."""
    program = whole_program()
    shared = _shared(program)
    others = sorted((spelling, meaning) for spelling, meaning in shared.items() if spelling != f"`{JSON}`")
    listed = (f"- {spelling}: {meaning}\n" for spelling, meaning in others)
    head = SHARED_HEAD.format(without=", ".join(_without_json(program)))
    parts = [HEAD, *_settings(program), head, *listed, "\n## Single commands\n"]
    return "".join([*parts, *_group(program, "factfold", shared)])


def _settings(program: Any) -> Iterator[str]:
    """A line for each option that has a variable: its three names."""
    used: set[tuple[str, str]] = set()
    for _, command in commands(program):
        for option in command.params:
            if option.envvar:
                used.add((option.opts[0], option.envvar if isinstance(option.envvar, str) else option.envvar[0]))
    for option, variable in sorted(used):
        key = variable.removeprefix("FACTFOLD_").lower()
        shown = "no key, because it is a secret" if key in SECRETS else f"`{_key(key)}`"
        yield f"- `{option}`, `{variable}`, {shown}\n"


def _key(name: str) -> str:
    table, _, rest = name.replace("__", "_").partition("_")
    return f"[{table}] {rest}" if table in ("kafka", "registry", "spark") else name


def _without_json(program: Any) -> Iterator[str]:
    for words, command in commands(program):
        if not hasattr(command, "commands") and not any(JSON in each.opts for each in _options(command)):
            yield f"`{' '.join(words)}`"


def _shared(program: Any) -> dict[str, str]:
    """Return the most common meaning of each argument and option that several commands have, by its spelling."""
    times = Counter(
        (_spelling(each), _common(each))
        for _, command in commands(program)
        for each in [*_arguments(command), *_options(command)]
    )
    often = [(spelling, meaning) for (spelling, meaning), count in times.most_common() if count >= AT_LEAST]
    return dict(reversed(often))  # of two meanings the more common one is entered last


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return a command and those in it, each with the words behind `factfold` that call it."""
    yield words, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, word))


def _group(group: Any, name: str, shared: dict[str, str]) -> Iterator[str]:
    commands = group.commands.items()
    single = {word: command for word, command in commands if not hasattr(command, "commands")}
    common = _of_all(list(single.values()), shared)
    if common:
        yield "\nEach of its commands has:\n\n" + "".join(common)
    yield from (_command(command, f"{name} {word}", shared, common) for word, command in single.items())
    for word, inner in commands:
        if hasattr(inner, "commands"):
            yield f"\n## {name} {word}\n\n{_text(inner.help)}\n"
            yield from _group(inner, f"{name} {word}", shared)


def _of_all(commands: list[Any], shared: dict[str, str]) -> list[str]:
    """Return the lines of options that each of several commands has, in the order of the first."""
    lines = [[_line(each) for each in _options(command) if not _is_shared(each, shared)] for command in commands]
    return [line for line in lines[0] if all(line in others for others in lines)] if len(lines) > 1 else []


def _is_shared(option: Any, shared: dict[str, str]) -> bool:
    return shared.get(_spelling(option)) == _common(option)


def _line(option: Any) -> str:
    return f"- {_spelling(option)}: {_meaning(option)}\n"


def _command(command: Any, name: str, shared: dict[str, str], above: list[str]) -> str:
    arguments, options = _arguments(command), _options(command)
    usage = " ".join([name, *(_placeholder(each) for each in arguments)])
    alike = [each for each in options if _is_shared(each, shared)]
    rows = [_line(each) for each in arguments if not _is_shared(each, shared)]
    rows += [_line(each) for each in options if each not in alike and _line(each) not in above]
    mentioned = [_mention(each) for each in alike if JSON not in each.opts]
    rows += [f"- Shared: {', '.join(mentioned)}.\n"] if mentioned else []
    listed = "\n" + "".join(rows) if rows else ""
    return f"\n### `{usage}`\n\n{_text(command.help)}\n{listed}"


def _arguments(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "argument"]


def _options(command: Any) -> list[Any]:
    if hasattr(command, "commands"):
        return []
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    return [each for each in options if each.name != "help"]


def _mention(option: Any) -> str:
    """Name an option that is described above: whether it is required, and its default here."""
    default = _default(option).removeprefix("Default: ").removesuffix(".")
    here = "required" if option.required else default
    return f"`{option.opts[0]}`{f' ({here})' if here else ''}"


def _placeholder(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name += "…" if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _spelling(option: Any) -> str:
    if option.param_type_name == "argument":
        return f"`{_placeholder(option)}`"
    value = "" if option.is_flag or option.count else f" {option.metavar or _kind(option.type_descriptor.annotation)}"
    return ", ".join(f"`{name}{value}`" for name in [*option.opts, *option.secondary_opts])


def _kind(annotation: Any) -> str:
    """Name what an option takes: its choices, or a word for its type."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(each.value for each in annotation)
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    (kind, *_) = get_args(annotation) or [annotation]  # list[str] is given as one text each time
    return KINDS[kind]


def _meaning(parameter: Any) -> str:
    must = "Required." if parameter.required and parameter.param_type_name == "option" else ""
    return " ".join(part for part in (_common(parameter), must, _default(parameter)) if part)


def _common(parameter: Any) -> str:
    """What a parameter means in any command: its help, and a second variable that it may take."""
    names = parameter.envvar if isinstance(parameter.envvar, list | tuple) else ()
    more = f"Else from {', '.join(f'`{name}`' for name in names[1:])}." if names[1:] else ""
    return " ".join(part for part in (_text(parameter.help), more) if part)


def _default(parameter: Any) -> str:
    value = getattr(parameter.default, "value", parameter.default)  # an enumeration's member is given by its value
    shown = parameter.show_default and not callable(value) and value not in (None, False, "", [], ())
    return f"Default: `{value}`." if shown else ""


def _text(help: str | None) -> str:
    # One paragraph is one line, without bare tags.
    return " ".join((help or "").split()).replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
