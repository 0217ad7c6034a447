"""The arguments of a call: checked against a JSON schema, then turned into the types of the hints."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any, get_args

import cattrs

from lagent.actions.json_schema import READERS, Schema, SchemaMaker, is_union
from lagent.errors import ActionArgumentsError

__all__ = ["fit", "structure"]

_CLASSES: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "array": (list, tuple), "object": Mapping}


def fit(
    value: Any, schema: Schema, where: str = "", definitions: dict[str, Schema] | None = None, *, strict: bool = False
) -> Any:
    """Check a JSON value against a schema; gives the value in the JSON type that the schema names, sharing no container with it.

    Without ``strict``, what says the same in another type is taken: ``"3"`` and ``3.0`` for an integer, ``"true"`` for a boolean,
    a number for a string, JSON text for an array or object. These parts of a schema are checked: ``type``, ``enum``, ``const``,
    ``anyOf``, ``oneOf``, ``$ref``, ``items``, ``prefixItems``, ``minItems``, ``maxItems``, ``properties``, ``required`` and
    ``additionalProperties``.

    Args:
        where: the name of the argument; empty for all arguments together.
        definitions: what ``$ref`` refers to, if not the ``$defs`` of ``schema``.

    Raises:
        ActionArgumentsError: the value does not fit; the text says which argument, what it is and what it should be.
    """
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    schema = _resolved(schema, definitions)
    if arms := _arms(schema):
        return _fit_any(value, arms, where, definitions, strict)
    kind, given = schema.get("type"), value
    if kind and not strict and not _is_a(value, kind):
        value = _read_as(kind, value)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if (kind and not _is_a(value, kind)) or (choices is not None and not any(_same(value, choice) for choice in choices)):
        raise _misfit(given, [schema], where, definitions)
    if isinstance(value, Mapping):
        return _fit_object(value, schema, where, definitions, strict)
    if isinstance(value, (list, tuple)):
        return _fit_array(value, schema, where, definitions, strict)
    return value


def _fit_any(value: Any, arms: list[Schema], where: str, definitions: dict[str, Schema], strict: bool) -> Any:
    errors: list[ActionArgumentsError] = []
    for strictly in (True,) if strict else (True, False):
        errors.clear()
        for arm in arms:
            try:
                return fit(value, arm, where, definitions, strict=strictly)
            except ActionArgumentsError as error:
                if isinstance(value, (Mapping, list, tuple)) and _is_a(value, _resolved(arm, definitions).get("type", "")):
                    errors.append(error)
    raise errors[0] if len(errors) == 1 else _misfit(value, arms, where, definitions)  # the only arm of its kind says more


def _fit_array(value: Any, schema: Schema, where: str, definitions: dict[str, Schema], strict: bool) -> list[Any]:
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if not least <= len(value) <= most:
        wanted = f"{least}" if least == most else f"at least {least}" if most == math.inf else f"{least} to {most}"
        raise ActionArgumentsError(f"argument {where!r} should have {wanted} items, got {len(value)}")
    first, rest = schema.get("prefixItems", []), schema.get("items", {})
    schemas = [*first, *[rest] * (len(value) - len(first))]
    return [
        fit(item, each, f"{where}[{index}]", definitions, strict=strict)
        for index, (item, each) in enumerate(zip(value, schemas, strict=False))
    ]


def _fit_object(
    value: Mapping[str, Any], schema: Schema, where: str, definitions: dict[str, Schema], strict: bool
) -> dict[str, Any]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    prefix = f"{where}." if where else ""
    problems = [f"argument '{prefix}{name}' is missing" for name in schema.get("required", ()) if name not in value]
    fitted: dict[str, Any] = {}
    for name, item in value.items():
        if name not in properties and others is False:
            known = ", ".join(f"'{prefix}{each}'" for each in properties) or "none"
            problems.append(f"argument '{prefix}{name}' is unknown (known: {known})")
            continue
        expected = properties.get(name, others if isinstance(others, dict) else {})
        try:
            fitted[name] = fit(item, expected, f"{prefix}{name}", definitions, strict=strict)
        except ActionArgumentsError as error:
            problems.append(str(error))
    if problems:
        raise ActionArgumentsError("; ".join(problems))
    return fitted


def _resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    return schema


def _arms(schema: Schema) -> list[Schema]:
    """The schemas of which one has to fit, if there is a choice."""
    if isinstance(schema.get("type"), list):
        return [schema | {"type": name} for name in schema["type"]]
    return schema.get("anyOf") or schema.get("oneOf") or []


def _is_a(value: Any, kind: str) -> bool:
    if value is None or isinstance(value, bool):
        return kind == ("null" if value is None else "boolean")
    return isinstance(value, _CLASSES.get(kind, ()))


def _same(value: Any, choice: Any) -> bool:
    return bool(value == choice) and isinstance(value, bool) is isinstance(choice, bool)


def _read_as(kind: str, value: Any) -> Any:
    """The value in another JSON type, where it says the same in that; else something of the wrong type."""
    if kind == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):
            read = json.loads(value.lower() if kind == "boolean" else value)
            return int(read) if kind == "integer" and isinstance(read, float) and read.is_integer() else read
    return value


def _misfit(value: Any, schemas: list[Schema], where: str, definitions: dict[str, Schema]) -> ActionArgumentsError:
    text = repr(value)
    text = text if len(text) <= 80 else f"{text[:80]}…"
    subject = f"argument {where!r}" if where else "the arguments"
    return ActionArgumentsError(f"{subject} should be {' or '.join(_words(each, definitions) for each in schemas)}, got {text}")


def _words(schema: Schema, definitions: dict[str, Schema]) -> str:
    schema = _resolved(schema, definitions)
    if "enum" in schema:
        return f"one of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema:
        return repr(schema["const"])
    if arms := _arms(schema):
        return " or ".join(_words(arm, definitions) for arm in arms)
    kind = schema.get("type", "any value")
    return kind if kind in ("null", "any value") else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


_converter = cattrs.Converter(detailed_validation=False, structure_fallback_factory=lambda _: lambda value, _: value)


def structure(value: Any, hint: Any) -> Any:
    """Turn a value that fits the schema of ``hint`` into the object that the hint asks for; as it is where the type is unknown.

    Raises:
        Exception: a class refuses the value, in a validator for example.
    """
    return _converter.structure(value, hint)


def _structure_union(value: Any, hint: Any) -> Any:
    return structure(value, next(arm for arm in get_args(hint) if _fits(value, arm)))


def _fits(value: Any, hint: Any) -> bool:
    maker = SchemaMaker()
    try:
        fit(value, maker.schema(hint), definitions=maker.definitions, strict=True)
    except ActionArgumentsError:
        return False
    return True


def _register(cls: type) -> None:
    read = READERS[cls][1]
    _converter.register_structure_hook_func(lambda hint: hint is cls, lambda value, _: read(value))


for _class in READERS:
    _register(_class)
_converter.register_structure_hook_func(is_union, _structure_union)
_converter.register_structure_hook_func(
    lambda hint: hasattr(hint, "model_validate"), lambda value, hint: hint.model_validate(value)
)
