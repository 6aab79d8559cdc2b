"""Arguments of a wrong type, refused where a program calls a public name: one check, by the annotations of them all.

Only values of Python's own types are refused, such as None or a text in the place of an engine. Objects of other
classes may do what is asked of them.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from itertools import chain, repeat
from types import FunctionType, NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

from eventstore.errors import FactfoldError, WrongType

F = TypeVar("F")
Fits = Callable[[Any], bool]
_PLAIN: Final = (NoneType, bool, int, float, str, bytes, list, dict, tuple, set, object, type)
_HOMES: Final = ("eventstore", "cdc", "projections", "collections.abc", "pathlib", "datetime", "sqlalchemy")
_MARK: Final = "__arguments_checked__"
_DECLARING: Final = re.compile(r"\.(declaring|connectors|subscriptions)\b")
_LEFT_ALONE: Final = frozenset({_MARK, "__init_subclass__", "__pydantic_fields__"})
# Made for each event or record that is read, by the thousand; and Branches by a function that checks more.
_RECORDS: Final = frozenset({
    "Arrival", "Branches", "ChangeEvent", "Command", "Entry", "LogMessage", "Metadata", "Position", "RecordedEvent",
    "StreamName",
})  # fmt: skip
_MOST_MEMBERS: Final = 100  # of a collection: what a program writes by hand


def with_checked_arguments(value: F, home: str) -> F:
    """Return a function, or a class with its methods, that raises WrongType; anything else as it is.

    A class that others inherit from checks its declarations itself.
    """
    if isinstance(value, FunctionType) and value.__module__ == home and not hasattr(value, _MARK):
        function: Any = _checked(value)
        setattr(sys.modules[home], value.__name__, function)
        return function  # type: ignore[no-any-return]
    if isinstance(value, type) and value.__name__ not in _RECORDS and not _is_left_alone(value):
        for name, member in [*vars(value).items()]:
            kind = type(member) if isinstance(member, classmethod | staticmethod) else None
            function = member.__func__ if kind else member
            if isinstance(function, FunctionType) and (name == "__init__" or not name.startswith("_")):
                setattr(value, name, kind(_checked(function)) if kind else _checked(function))
        setattr(value, _MARK, True)
    return value


def _is_left_alone(kind: type) -> bool:
    return bool(_LEFT_ALONE & vars(kind).keys()) or getattr(kind, "_is_protocol", False)


def _checked(function: Any) -> Any:
    names, fits = list[str](), dict[str, Fits]()
    declares = function.__name__ == "__init__" or bool(_DECLARING.search(function.__module__))

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not names:  # annotations are read at the first call: their modules may import each other
            fits.update(_fits_of(function))
            names[:] = _positional(function)
        for name, value in chain(zip(chain(names, repeat(names[-1])), args, strict=False), kwargs.items()):
            if name in fits and not fits[name](value):
                if declares:
                    _refused_by_itself(function, args, kwargs)
                raise _wrong(function, name, value)
        return function(*args, **kwargs)

    setattr(called, _MARK, True)
    return called


def _refused_by_itself(function: Any, args: Any, kwargs: Any) -> None:
    """Raise the error that a declaration has of its own: it knows better what to write instead."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        if isinstance(error, FactfoldError):
            raise


def _positional(function: Any) -> list[str]:
    """The parameters that take values without a name, the last one all further ones; no name if there is none."""
    parameters = inspect.signature(function).parameters.values()
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return [*names, next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")]


def _wrong(function: Any, name: str, value: object) -> WrongType:
    takes = inspect.signature(function).parameters[name].annotation
    return WrongType(
        f"{name} of {function.__qualname__} is or holds a value of a wrong type: {type(value).__name__}",
        remedy=f"give what its annotation says: {takes}",
        place=name,
    )


def _fits_of(function: Any) -> dict[str, Fits]:
    """The checks of the parameters whose annotations can be resolved."""
    fits: dict[str, Fits] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        with suppress(Exception):  # as where a type is imported for type checkers alone
            fits[name] = _fits(_resolved(str(parameter.annotation), function.__globals__))
    return fits


def _resolved(annotation: str, names: dict[str, Any]) -> Any:
    """The type of an annotation; what its module imports for type checkers alone is looked for in these packages."""
    found: dict[str, Any] = {}
    while True:
        try:
            return eval(annotation, names, found)  # noqa: S307 - of our own code
        except NameError as missing:
            name = missing.name or ""
            found[name] = next(value for value in _loaded(name) if isinstance(value, type))


def _loaded(name: str) -> Iterator[Any]:
    """The values of a name in the modules that define it. What is not loaded yet, no program can give."""
    for package in _HOMES:
        for home, module in [*sys.modules.items()]:
            value = getattr(module, "__dict__", {}).get(name) if home.startswith(package) else None
            if getattr(value, "__module__", None) == home:
                yield value


def _fits(hint: Any) -> Fits:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        several = [_fits(one) for one in args]
        return lambda value: any(fits(value) for fits in several)
    if origin is Literal:
        return lambda value: type(value) in map(type, args)  # which of them, the function says
    kind = origin or hint
    if not isinstance(kind, type) or kind in (object, Any):
        return _anything
    if kind is type:
        base = args[0] if args and isinstance(args[0], type) else object
        return lambda value: isinstance(value, type) and issubclass(value, base)
    if issubclass(kind, Mapping):
        keys, values = map(_fits, args or (object, object))
        return lambda value: isinstance(value, kind) and all(keys(k) and values(v) for k, v in _first(value.items()))
    if issubclass(kind, Iterable) and args and kind is not tuple:
        members = _fits(args[0])
        return lambda value: _is_collection(value) and all(map(members, _first(value)))
    kinds = () if getattr(kind, "_is_protocol", False) else (kind, int) if kind is float else (kind,)
    return lambda value: type(value) not in _PLAIN or isinstance(value, kinds)


def _anything(value: object) -> bool:
    return True


def _is_collection(value: object) -> bool:
    """Not a text: its members would be its letters."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _first(values: Iterable[Any]) -> Collection[Any]:
    """The members to look at; none of an iterator, which can be read once."""
    return [one for one, _ in zip(values, range(_MOST_MEMBERS), strict=False)] if isinstance(values, Collection) else ()
