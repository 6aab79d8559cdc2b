"""The examples in docstrings of documented names: each name has one, and each calls what exists as it is declared."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from doctest import DocTestParser

import pytest

from tests.rows import each_row
from tests.unit.test_site import ENTRIES, ERRORS

FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def documented():
    """Classes and functions by their entries; errors and constants need no example."""
    values = {}
    for entry in [entry for entry in ENTRIES if entry not in ERRORS]:
        home, _, name = entry.rpartition(".")
        value = getattr(importlib.import_module(home), name)
        is_error = inspect.isclass(value) and issubclass(value, Exception)
        if (inspect.isclass(value) or inspect.isfunction(value)) and not is_error:
            values[entry] = value
    return values


VALUES = documented()


def statements(docstring):
    """The statements of a docstring's section `Examples`."""
    section = re.split(r"^Examples:$", inspect.cleandoc(docstring or ""), maxsplit=1, flags=re.MULTILINE)[1:]
    return [
        statement
        for text in section
        for example in DocTestParser().get_examples(text)
        for statement in compile(example.source, "<example>", "exec", FLAGS).body
    ]


def named(name):
    """The documented values of a name; two modules may have one each."""
    return [value for entry, value in VALUES.items() if entry.rpartition(".")[2] == name]


def called(call):
    """The documented values that a call may mean, by themselves or as an attribute of a documented class."""
    match call.func:
        case ast.Name(id=name):
            return named(name)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return [getattr(value, attribute) for value in named(name) if inspect.isclass(value)]
    return []


def refusal(value, call):
    """Why a signature refuses a call; None if it takes it, or if the call spreads its arguments."""
    if any(isinstance(argument, ast.Starred) for argument in call.args) or not all(word.arg for word in call.keywords):
        return None
    try:
        inspect.signature(value).bind(*call.args, **{word.arg: None for word in call.keywords})
    except TypeError as error:
        return str(error)
    return None


def mistakes(docstring):
    """Calls of documented names that the signatures of all values of that name refuse."""
    for statement in statements(docstring):
        for call in [node for node in ast.walk(statement) if isinstance(node, ast.Call)]:
            refusals = [refusal(value, call) for value in called(call)]
            if refusals and all(refusals):
                yield f"{ast.unparse(call)}: {refusals[0]}"


@each_row("entry", VALUES)
def test_a_documented_name_has_an_example_that_calls_what_exists(entry):
    docstring = VALUES[entry].__doc__
    assert statements(docstring), f"the docstring of {entry} has no section `Examples:` with a line of >>>"
    assert list(mistakes(docstring)) == []


def test_a_wrong_call_and_a_missing_example_are_seen():
    assert statements("Do it.\n\n>>> 1") == []
    (mistake,) = mistakes("Do it.\n\nExamples:\n    >>> Dispatcher(store, retries=3)\n")
    assert "retries" in mistake
    assert list(mistakes("Do it.\n\nExamples:\n    >>> await AsyncDispatcher(store).send('o1', pay)\n")) == []
    with pytest.raises(AttributeError):
        list(mistakes("Do it.\n\nExamples:\n    >>> Table.from_nothing(1)\n"))
