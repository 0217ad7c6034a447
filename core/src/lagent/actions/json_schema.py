"""Type hints as JSON schema, and JSON values as what the hints ask for."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import json
import math
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin

import attrs
import cattrs

from lagent.actions.docstring import parse_docstring
from lagent.errors import ActionArgumentsError
from lagent.schema import to_data

__all__ = ["Schema", "default_of", "fit", "schema_of", "structure"]

Schema = dict[str, Any]

_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
}
_READ: dict[type, tuple[Schema, Callable[[Any], Any]]] = {
    datetime.datetime: (
        {"type": "string", "format": "date-time"},
        lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00")),
    ),
    datetime.date: ({"type": "string", "format": "date"}, datetime.date.fromisoformat),
    datetime.time: ({"type": "string", "format": "time"}, datetime.time.fromisoformat),
    uuid.UUID: ({"type": "string", "format": "uuid"}, uuid.UUID),
    pathlib.Path: ({"type": "string", "format": "path"}, pathlib.Path),
    decimal.Decimal: ({"type": "number"}, lambda number: decimal.Decimal(str(number))),
}
"""Classes that are read from a scalar."""


# From hints to schema --------------------------------------------------------------------------------------------


def schema_of(hint: Any, definitions: dict[str, Schema]) -> Schema:
    """The JSON schema of a type hint, close to what pydantic makes of it; ``{}`` (anything) for an unknown type.

    Args:
        definitions: takes the schemas of classes and enums, which the result refers to as ``#/$defs/Name``.
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        text = next(filter(None, map(_text_of, args[1:])), None)
        return schema_of(args[0], definitions) | ({"description": text} if text else {})
    if isinstance(hint, NewType):
        return schema_of(hint.__supertype__, definitions)
    if getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly", "Final"):
        return schema_of(args[0], definitions)
    if hasattr(hint, "__value__"):  # ``type Name = …``
        return schema_of(hint.__value__, definitions)
    if _is_union(hint):
        return {"anyOf": [schema_of(arm, definitions) for arm in args]}
    if origin is Literal:
        return _choice([to_data(value) for value in args])
    try:
        if hint in _SCALARS:
            return dict(_SCALARS[hint])
        if hint in _READ:
            return dict(_READ[hint][0])
    except TypeError:  # not hashable: no hint at all
        return {}
    cls = origin or hint
    if not isinstance(cls, type):
        return {}
    if issubclass(cls, Enum):
        return _reference(cls, definitions, lambda: _choice([to_data(member) for member in cls]))
    if hasattr(cls, "model_json_schema"):
        return _reference(cls, definitions, lambda: _pydantic_schema(cls, definitions))
    if _has_fields(cls):
        return _reference(cls, definitions, lambda: _object_schema(cls, definitions))
    return _container_schema(cls, args, definitions)


def _text_of(annotation: Any) -> str | None:
    """The description in the metadata of ``Annotated``: a string, or an object such as ``Doc`` or pydantic's ``Field``."""
    if isinstance(annotation, str):
        return annotation
    return getattr(annotation, "documentation", None) or getattr(annotation, "description", None)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _choice(values: list[Any]) -> Schema:
    kinds = {_type_name(value) for value in values}
    schema: Schema = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return schema | ({"type": kinds.pop()} if len(kinds) == 1 else {})


def _reference(cls: type, definitions: dict[str, Schema], make: Callable[[], Schema]) -> Schema:
    name = cls.__name__
    if name in definitions and definitions[name].get("$comment") != _place(cls):
        name = f"{cls.__module__}.{cls.__qualname__}".replace(".", "__").replace("<locals>", "")
    if name not in definitions:
        definitions[name] = {"$comment": _place(cls)}  # before the fields, as a class may refer to itself
        definitions[name] |= make()
    return {"$ref": f"#/$defs/{name}"}


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _pydantic_schema(cls: Any, definitions: dict[str, Schema]) -> Schema:
    schema: Schema = cls.model_json_schema()
    definitions.update(schema.pop("$defs", {}))
    return schema


def _has_fields(cls: type) -> bool:
    return attrs.has(cls) or dataclasses.is_dataclass(cls) or typing.is_typeddict(cls)


def _object_schema(cls: type, definitions: dict[str, Schema]) -> Schema:
    docs = parse_docstring(None if (cls.__doc__ or "").startswith(f"{cls.__name__}(") else cls.__dict__.get("__doc__"))
    hints = typing.get_type_hints(cls, include_extras=True)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for name, default in _fields(cls):
        properties[name] = schema_of(hints.get(name, Any), definitions) | default_of(default)
        if name in docs.parameters:
            properties[name].setdefault("description", docs.parameters[name].description)
        if default is _REQUIRED:
            required.append(name)
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": required} if required else {}) | ({"description": docs.text} if docs.text else {})


_REQUIRED, _OPTIONAL = object(), object()


def _fields(cls: Any) -> Iterator[tuple[str, Any]]:
    """The fields that can be given, with their defaults."""
    if typing.is_typeddict(cls):
        for name in cls.__annotations__:
            yield name, _REQUIRED if name in cls.__required_keys__ else _OPTIONAL
        return
    for each in attrs.fields(cls) if attrs.has(cls) else dataclasses.fields(cls):
        missing = (attrs.NOTHING, dataclasses.MISSING)
        factory = isinstance(each.default, attrs.Factory) or getattr(each, "default_factory", missing[1]) is not missing[1]  # type: ignore[arg-type]
        if each.init:
            yield each.name, _OPTIONAL if factory else _REQUIRED if each.default in missing else each.default


def default_of(value: Any) -> Schema:
    """``{"default": …}`` if the value can be written as JSON, else nothing."""
    data = to_data(value)
    return {} if isinstance(data, str) and not isinstance(value, (str, Enum)) else {"default": data}


def _container_schema(cls: type, args: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    if issubclass(cls, tuple) and args and args[-1] is not Ellipsis:
        items = [schema_of(arg, definitions) for arg in args]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if issubclass(cls, Mapping):
        return {"type": "object", "additionalProperties": schema_of(args[1], definitions) if len(args) == 2 else True}
    if issubclass(cls, (Sequence, Set)) or cls is Iterable:
        schema = {"type": "array", "items": schema_of(args[0], definitions) if args and not isinstance(args[0], TypeVar) else {}}
        return schema | ({"uniqueItems": True} if issubclass(cls, Set) else {})
    return {}


# From values to what the schema asks -----------------------------------------------------------------------------


class _Misfit(Exception):
    """A value does not fit: its place, what was expected and what is there, in words."""


def fit(value: Any, schema: Schema, where: str, root: Schema | None = None, *, strict: bool = False) -> Any:
    """Check a JSON value against a schema and give it in the type that the schema names.

    Without ``strict``, scalars that say the same are taken: ``"3"`` and ``3.0`` for an integer, ``"true"`` for a boolean, a number for
    a string, JSON text for an array or object. Of the schema are checked: ``type``, ``enum``, ``const``, ``anyOf``, ``oneOf``, ``$ref``,
    ``items``, ``prefixItems``, ``minItems``, ``maxItems``, ``properties``, ``required``, ``additionalProperties``.

    Args:
        where: the name of the argument, for the error.
        root: the schema that holds ``$defs``; ``schema`` itself if not given.

    Raises:
        ActionArgumentsError: the value does not fit.
    """
    try:
        return _fit(value, schema, where, schema if root is None else root, strict)
    except _Misfit as misfit:
        raise ActionArgumentsError(str(misfit)) from None


def _fit(value: Any, schema: Schema, where: str, root: Schema, strict: bool) -> Any:
    if "$ref" in schema:
        return _fit(value, root["$defs"][schema["$ref"].rpartition("/")[2]], where, root, strict)
    arms = schema.get("anyOf") or schema.get("oneOf")
    if arms is None and isinstance(schema.get("type"), list):
        arms = [schema | {"type": name} for name in schema["type"]]
    if arms is not None:
        for strictly in (True,) if strict else (True, False):
            for arm in arms:
                with contextlib.suppress(_Misfit):
                    return _fit(value, arm, where, root, strictly)
        raise _misfit(value, schema, where, root)
    kind = schema.get("type")
    if kind is not None and not _is_a(value, kind):
        if strict or (value := _read_as(kind, original := value)) is None:
            raise _misfit(value if strict else original, schema, where, root)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if choices is not None and not any(value == choice and isinstance(value, bool) is isinstance(choice, bool) for choice in choices):
        raise _misfit(value, schema, where, root)
    if kind == "array":
        return _fit_array(list(value), schema, where, root, strict)
    if kind == "object":
        return _fit_object(dict(value), schema, where, root, strict)
    return float(value) if kind == "number" and not strict else value


def _fit_array(value: list[Any], schema: Schema, where: str, root: Schema, strict: bool) -> list[Any]:
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if not least <= len(value) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise _Misfit(f"{where!r} has {len(value)} items and should have {wanted}")
    first = schema.get("prefixItems", [])
    rest = schema.get("items", {})
    return [
        _fit(item, first[i] if i < len(first) else rest, f"{where}[{i}]", root, strict) for i, item in enumerate(value)
    ]


def _fit_object(value: dict[str, Any], schema: Schema, where: str, root: Schema, strict: bool) -> dict[str, Any]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    prefix = f"{where}." if where else ""
    problems = [f"{prefix + name!r} is missing" for name in schema.get("required", ()) if name not in value]
    if others is False and (unknown := [name for name in value if name not in properties]):
        known = ", ".join(map(repr, properties)) or "none"
        problems += [f"{', '.join(repr(f'{prefix}{name}') for name in unknown)} is unknown, known are {known}"]
    fitted: dict[str, Any] = {}
    for name, item in value.items():
        try:
            fitted[name] = _fit(item, properties.get(name, others if isinstance(others, dict) else {}), f"{prefix}{name}", root, strict)
        except _Misfit as misfit:
            problems.append(str(misfit))
    if problems:
        raise _Misfit("; ".join(problems))
    return fitted


def _type_name(value: Any) -> str:
    for cls, schema in _SCALARS.items():
        if value is None or (cls and type(value) is cls):
            return "null" if value is None else str(schema["type"])
    return "object" if isinstance(value, Mapping) else "array"


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or value is None:
        return kind == _type_name(value)
    classes: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "array": (list, tuple), "object": Mapping}
    return isinstance(value, classes.get(kind, ()))


def _read_as(kind: str, value: Any) -> Any:
    """The value in another JSON type, if it says the same there; else ``None``."""
    if kind == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and kind != "string":
        with contextlib.suppress(ValueError, RecursionError):
            read = json.loads(value.lower() if kind == "boolean" else value)
            return read if _is_a(read, kind) and not (kind == "number" and not math.isfinite(read)) else None
    return None


def _misfit(value: Any, schema: Schema, where: str, root: Schema) -> _Misfit:
    text = repr(value)
    return _Misfit(f"{where!r} should be {_in_words(schema, root)}, got {text[:80]}{'…' * (len(text) > 80)}")


def _in_words(schema: Schema, root: Schema) -> str:
    if "$ref" in schema:
        return _in_words(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "enum" in schema:
        return f"one of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema:
        return repr(schema["const"])
    arms = schema.get("anyOf") or schema.get("oneOf")
    if arms is None and isinstance(schema.get("type"), list):
        arms = [{"type": name} for name in schema["type"]]
    if arms is not None:
        return " or ".join(_in_words(arm, root) for arm in arms)
    kind = schema.get("type", "any value")
    article = {"null": "", "any value": ""}.get(kind, "an " if kind[0] in "aeiou" else "a ")
    return f"{article}{kind}"


# From fitting values to objects ----------------------------------------------------------------------------------

_converter = cattrs.Converter(detailed_validation=False, structure_fallback_factory=lambda _: lambda value, _: value)
for _class, (_, _read) in _READ.items():
    _converter.register_structure_hook_func(lambda hint, cls=_class: hint is cls, lambda value, _, read=_read: read(value))
_converter.register_structure_hook_func(lambda hint: hasattr(hint, "model_validate"), lambda value, hint: hint.model_validate(value))


def _structure_union(value: Any, hint: Any) -> Any:
    for arm in get_args(hint):
        definitions: dict[str, Schema] = {}
        with contextlib.suppress(ActionArgumentsError):
            checked = fit(value, {**schema_of(arm, definitions), "$defs": definitions}, "", strict=True)
            return _converter.structure(checked, arm)
    return value


_converter.register_structure_hook_func(_is_union, _structure_union)


def structure(value: Any, hint: Any) -> Any:
    """Turn a JSON value that fits the schema of ``hint`` into the object that the hint asks for.

    Raises:
        Exception: a class refuses the value, by a validator for example.
    """
    return _converter.structure(value, hint)
