"""JSON schemas of type hints."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import pathlib
import sys
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

import attrs

from lagent.actions.docstring import parse_docstring
from lagent.schema import to_data

__all__ = ["READERS", "Schema", "SchemaMaker", "default_of", "is_union", "resolved_hints"]

Schema = dict[str, Any]

_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", None: "null"}

READERS: dict[type, tuple[Schema, Callable[[Any], Any]]] = {
    datetime.datetime: (
        {"type": "string", "format": "date-time"},
        lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00")),
    ),
    datetime.date: ({"type": "string", "format": "date"}, datetime.date.fromisoformat),
    datetime.time: ({"type": "string", "format": "time"}, datetime.time.fromisoformat),
    uuid.UUID: ({"type": "string", "format": "uuid"}, uuid.UUID),
    pathlib.Path: ({"type": "string", "format": "path"}, pathlib.Path),
    decimal.Decimal: ({"anyOf": [{"type": "number"}, {"type": "string"}]}, lambda number: decimal.Decimal(str(number))),
}
"""Classes that stand in JSON as a scalar: their schema, and how they are read."""

# In place of the default of a field that has to be given, and of one that is optional but has no default to show.
_REQUIRED, _OPTIONAL = object(), object()


class SchemaMaker:
    """Makes JSON schemas of type hints, close to what pydantic makes of them.

    Attributes:
        definitions: the schemas of the classes and enums met so far, which the others refer to as ``#/$defs/Name``.
    """

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._classes: dict[str, type] = {}

    def schema(self, hint: Any) -> Schema:
        """The schema of a type hint; ``{}``, which allows anything, if there is no JSON for the type."""
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            text = next(filter(None, map(_text_of, args[1:])), None)
            return self.schema(args[0]) | ({"description": text} if text else {})
        if isinstance(hint, NewType):
            return self.schema(hint.__supertype__)
        if hasattr(hint, "__value__"):  # type Name = …
            return self.schema(hint.__value__)
        if getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly"):
            return self.schema(args[0])
        if is_union(hint):
            return {"anyOf": [self.schema(arm) for arm in args]}
        if origin is Literal:
            return _choice(args)
        cls = origin or hint
        if cls in _SCALARS:
            return {"type": _SCALARS[cls]}
        return self._class_schema(cls, args) if isinstance(cls, type) else {}

    def _class_schema(self, cls: Any, args: tuple[Any, ...]) -> Schema:
        if cls in READERS:
            return dict(READERS[cls][0])
        if issubclass(cls, Enum):
            return self._reference(cls, lambda: _choice(cls))
        if hasattr(cls, "model_json_schema"):
            return self._reference(cls, lambda: self._pydantic_schema(cls))
        if attrs.has(cls) or dataclasses.is_dataclass(cls) or _is_typed_dict(cls):
            return self._reference(cls, lambda: self._object_schema(cls))
        if issubclass(cls, tuple) and args and args[-1] is not Ellipsis:
            items = [self.schema(arg) for arg in args]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if issubclass(cls, Mapping):
            return {"type": "object", "additionalProperties": (self.schema(args[1]) if args else {}) or True}
        if issubclass(cls, (Sequence, Set)) or cls is Iterable:
            schema = {"type": "array", "items": self.schema(args[0]) if args else {}}
            return schema | ({"uniqueItems": True} if issubclass(cls, Set) else {})
        return {}

    def _reference(self, cls: type, make: Callable[[], Schema]) -> Schema:
        name = cls.__name__
        if self._classes.setdefault(name, cls) is not cls:
            name = f"{cls.__module__}.{cls.__qualname__}".replace(".<locals>", "")
        if name not in self.definitions:
            self.definitions[name] = {}  # before the fields, as a class may refer to itself
            self.definitions[name] = make()
        return {"$ref": f"#/$defs/{name}"}

    def _pydantic_schema(self, cls: Any) -> Schema:
        schema: Schema = cls.model_json_schema()
        self.definitions |= schema.pop("$defs", {})
        return self.definitions[cls.__name__] if "$ref" in schema else schema

    def _object_schema(self, cls: type) -> Schema:
        written = cls.__dict__.get("__doc__") or ""
        if written.startswith(f"{cls.__name__}("):  # what a dataclass writes by itself
            written = ""
        docs = parse_docstring(written)
        hints = resolved_hints(cls)
        properties: dict[str, Schema] = {}
        required = []
        for name, default in _fields(cls):
            properties[name] = self.schema(hints.get(name, Any)) | default_of(default)
            if name in docs.parameters:
                properties[name].setdefault("description", docs.parameters[name].description)
            if default is _REQUIRED:
                required.append(name)
        schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return schema | ({"required": required} if required else {}) | ({"description": docs.text} if docs.text else {})


def is_union(hint: Any) -> bool:
    """Whether a hint is ``A | B`` in any spelling."""
    return get_origin(hint) in (Union, types.UnionType)


def _is_typed_dict(cls: type) -> bool:  # typing.is_typeddict does not know those of typing_extensions
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def default_of(value: Any) -> Schema:
    """``{"default": …}``, if the value can be written as JSON."""
    data = _data(value)
    return {} if isinstance(data, str) and not isinstance(value, (str, Enum)) else {"default": data}


def resolved_hints(annotated: Any) -> dict[str, Any]:
    """The type hints of a function or class; those that name what does not exist at run time are left out."""
    hints: dict[str, Any] = {}
    for owner in reversed(annotated.__mro__) if isinstance(annotated, type) else [annotated]:
        module = sys.modules.get(getattr(owner, "__module__", None) or "")
        scope = getattr(owner, "__globals__", None) or getattr(module, "__dict__", {})
        for name, annotation in getattr(owner, "__annotations__", {}).items():
            holder: Any = types.SimpleNamespace(__annotations__={name: annotation})
            with contextlib.suppress(NameError, AttributeError, TypeError, SyntaxError):
                hints |= typing.get_type_hints(holder, scope, include_extras=True)
    return hints


def _text_of(annotation: Any) -> Any:
    """The description in the metadata of ``Annotated``: a string, or that of an object such as ``Doc`` or pydantic's ``Field``."""
    return (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "documentation", None) or getattr(annotation, "description", None)
    )


def _data(value: Any) -> Any:
    return to_data(value.value if isinstance(value, Enum) else value)


def _choice(values: Iterable[Any]) -> Schema:
    choices = [_data(value) for value in values]
    kinds = {_SCALARS.get(type(choice)) for choice in choices}
    schema: Schema = {"const": choices[0]} if len(choices) == 1 else {"enum": choices}
    return schema | ({"type": kinds.pop()} if len(kinds) == 1 else {})


def _fields(cls: Any) -> Iterator[tuple[str, Any]]:
    """The fields that can be given, with their defaults."""
    if _is_typed_dict(cls):
        yield from ((name, _REQUIRED if name in cls.__required_keys__ else _OPTIONAL) for name in cls.__annotations__)
    elif attrs.has(cls):
        for each in attrs.fields(cls):
            if each.init:
                default = _OPTIONAL if isinstance(each.default, attrs.Factory) else each.default  # type: ignore[arg-type]
                yield each.name, _REQUIRED if default is attrs.NOTHING else default
    else:
        for each in dataclasses.fields(cls):
            if each.init:
                default = each.default if each.default_factory is dataclasses.MISSING else _OPTIONAL
                yield each.name, _REQUIRED if default is dataclasses.MISSING else default
