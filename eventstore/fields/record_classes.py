"""Classes of named fields: dataclasses, and where they are installed pydantic models and msgspec structs.

Only modules that are already imported are checked: a pydantic model exists only after an import of pydantic.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from eventstore.errors import DeclarationError

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordClass:
    """How the fields of a class are listed, taken out of an object and put into one.

    ``defaults`` has a maker for each field, None for a required one, in the order of declaration. ``values`` may return
    the object's own dictionary. ``restore`` takes a value for every field, ``construct`` those that are known.
    """

    defaults: Mapping[str, Callable[[], Any] | None]
    values: Callable[[Any], Values]
    restore: Callable[[Values], Any]
    construct: Callable[[Values], Any]
    frozen: bool


def record_class(cls: type) -> RecordClass | None:
    """Return the ways of a class of fields, None for any other class; DeclarationError if it takes undeclared ones."""
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls)
    for module, base, ways in (("pydantic", "BaseModel", _pydantic), ("msgspec", "Struct", _msgspec)):
        library = sys.modules.get(module)
        if library is not None and issubclass(cls, getattr(library, base)):
            return ways(cls)
    return None


def _dataclass(cls: type) -> RecordClass:
    defaults = {field.name: _default(field, dataclasses.MISSING) for field in dataclasses.fields(cls)}
    slotted = "__slots__" in vars(cls)
    construct = partial(_construct, cls)
    return RecordClass(
        defaults,
        values=partial(_values, tuple(defaults)) if slotted else vars,
        restore=construct if slotted else partial(_restore, cls),
        construct=construct,
        frozen=cls.__dataclass_params__.frozen,  # type: ignore[attr-defined]  # every dataclass has them
    )


def _pydantic(cls: Any) -> RecordClass:
    if cls.model_config.get("extra") == "allow":
        raise DeclarationError(
            f"{cls.__qualname__} takes fields that it does not declare, which would not be stored",
            remedy="declare them, and give the model extra='forbid'",
            place=cls.__qualname__,
        )
    fields = {name: _pydantic_default(field) for name, field in cls.model_fields.items()}
    construct = partial(_model, cls)
    return RecordClass(fields, vars, construct, construct, frozen=bool(cls.model_config.get("frozen")))


def _msgspec(cls: Any) -> RecordClass:
    library = sys.modules["msgspec"]
    defaults = {field.name: _default(field, library.NODEFAULT) for field in library.structs.fields(cls)}
    construct = partial(_construct, cls)
    return RecordClass(
        defaults, partial(_values, tuple(defaults)), construct, construct, frozen=cls.__struct_config__.frozen
    )


def _default(field: Any, missing: object) -> Callable[[], Any] | None:
    if field.default_factory is not missing:
        factory: Callable[[], Any] = field.default_factory
        return factory
    return None if field.default is missing else partial(_same, field.default)


def _pydantic_default(field: Any) -> Callable[[], Any] | None:
    return None if field.is_required() else partial(field.get_default, call_default_factory=True)


def _same(value: Any) -> Any:
    return value


def _values(names: tuple[str, ...], record: Any) -> Values:
    return {name: getattr(record, name) for name in names}


def _restore(cls: type, values: Values) -> Any:
    """The constructor is passed by: it costs three times as much, and a stored fact is not validated again."""
    record: Any = object.__new__(cls)
    object.__setattr__(record, "__dict__", values)
    return record


def _construct(cls: type, values: Values) -> Any:
    return cls(**values)


def _model(cls: Any, values: Values) -> Any:
    return cls.model_construct(**values)
