"""The page of the `factfold` command, from the program itself: `python -m docs.commands_page` writes it."""

from __future__ import annotations

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
terminal. An option with an environment variable takes its value from there if it is not given.
`--debug` goes anywhere in a command and shows the traceback of an error.

[Reference](README.md) · [Use the commands from programs](../how-to/use-the-commands-from-programs.md)

## Settings

A setting has one name: option, variable and key in [`factfold.toml`](../how-to/start-a-project.md) are alike.

| option | variable | `factfold.toml` | commands |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page as the program is now."""
    program = whole_program()
    return HEAD + "".join(_settings(program)) + "\n## Single commands\n" + "".join(_group(program, "factfold"))


def _settings(program: Any) -> Iterator[str]:
    """A row for each option that has a variable: its names, and the commands that have it."""
    used: dict[tuple[str, str], list[str]] = {}
    for words, command in commands(program):
        for option in command.params:
            if option.envvar:
                variable = option.envvar if isinstance(option.envvar, str) else option.envvar[0]
                used.setdefault((option.opts[0], variable), []).append(words[0])
    for (option, variable), users in sorted(used.items()):
        key = variable.removeprefix("FACTFOLD_").lower()
        shown = "none: a secret" if key in SECRETS else f"`{_key(key)}`"
        yield f"| `{option}` | `{variable}` | {shown} | {', '.join(f'`{one}`' for one in dict.fromkeys(users))} |\n"


def _key(name: str) -> str:
    table, _, rest = name.replace("__", "_").partition("_")
    return f"[{table}] {rest}" if table in ("kafka", "registry", "spark") else name


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return a command and those in it, each with the words behind `factfold` that call it."""
    yield words, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, word))


def _group(group: Any, name: str) -> Iterator[str]:
    commands = group.commands.items()
    yield from (_command(command, f"{name} {word}") for word, command in commands if not hasattr(command, "commands"))
    for word, inner in commands:
        if hasattr(inner, "commands"):
            yield f"\n## {name} {word}\n\n{_text(inner.help)}\n"
            yield from _group(inner, f"{name} {word}")


def _command(command: Any, name: str) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join([name, *("[OPTIONS]" for _ in options[:1]), *(_placeholder(each) for each in arguments)])
    rows = [f"| `{_placeholder(each)}` | {_meaning(each)} |\n" for each in arguments]
    rows += [f"| {_spelling(each)} | {_meaning(each)} |\n" for each in options if each.name != "help"]
    table = "\n| argument or option | meaning |\n| --- | --- |\n" + "".join(rows) if rows else ""
    return f"\n### {name}\n\n{_text(command.help)}\n\n```text\n{usage}\n```\n{table}"


def _placeholder(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name += "…" if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _spelling(option: Any) -> str:
    value = "" if option.is_flag or option.count else f" {option.metavar or _kind(option.type_descriptor.annotation)}"
    return ", ".join(f"`{name}{value}`" for name in [*option.opts, *option.secondary_opts])


def _kind(annotation: Any) -> str:
    """Name what an option takes: its choices, or a word for its type."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "\\|".join(each.value for each in annotation)
    if get_origin(annotation) is Literal:
        return "\\|".join(get_args(annotation))
    (kind, *_) = get_args(annotation) or [annotation]  # list[str] is given as one text each time
    return KINDS[kind]


def _meaning(parameter: Any) -> str:
    return " ".join(part for part in (_text(parameter.help), _required(parameter), _default(parameter)) if part)


def _required(parameter: Any) -> str:
    names = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or ()
    variable = f"Variable: {', else '.join(f'`{name}`' for name in names)}." if names else ""
    must = "Required." if parameter.required and parameter.param_type_name == "option" else ""
    return " ".join(part for part in (must, variable) if part)


def _default(parameter: Any) -> str:
    value = getattr(parameter.default, "value", parameter.default)  # an enumeration's member is given by its value
    shown = parameter.show_default and not callable(value) and value not in (None, False, "", [], ())
    return f"Default: `{value}`." if shown else ""


def _text(help: str | None) -> str:
    # One paragraph is one line, and a table's cell has no line breaks and no bare bars or tags.
    text = " ".join((help or "").split())
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
