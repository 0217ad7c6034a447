"""What a user may give as the type of structured output: its JSON schema, its description for the model, and how a value is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import frozen

from lagent.actions.arguments import fit, structure
from lagent.actions.json_schema import SchemaMaker
from lagent.errors import ConfigurationError

__all__ = ["Form", "form_of", "one_schema", "skeleton"]

_SCHEMA_WORDS = {"type", "properties", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "items"}


@frozen
class Form:
    """A type of structured output.

    Attributes:
        name: what the user calls it.
        schema: its JSON schema.
        read: makes an object of it from JSON data, or raises.
    """

    name: str
    schema: dict[str, Any]
    read: Callable[[Any], Any]


def form_of(name: str, hint: Any) -> Form:
    """The form that ``hint`` stands for: a pydantic, msgspec, attrs or data class, a TypedDict, any other type hint, a pydantic
    TypeAdapter, or a JSON schema.

    Raises:
        ConfigurationError: it is a mapping, but no JSON schema.
    """
    if isinstance(hint, Mapping):
        if not _SCHEMA_WORDS & hint.keys():
            raise ConfigurationError(
                f"{name} is no JSON schema: it has none of {', '.join(sorted(_SCHEMA_WORDS))}, but {hint!r:.80}"
            )
        schema = dict(hint)
        return Form(name, schema, lambda value: fit(value, schema))
    if hasattr(hint, "model_validate"):  # a pydantic model
        return Form(name, hint.model_json_schema(), hint.model_validate)
    if hasattr(hint, "validate_python"):  # a pydantic TypeAdapter
        return Form(name, hint.json_schema(), hint.validate_python)
    if hasattr(hint, "__struct_fields__"):
        import msgspec  # which is there, if someone has a struct of it

        return Form(name, _flat(msgspec.json.schema(hint)), lambda value: msgspec.convert(value, hint, strict=False))
    maker = SchemaMaker()
    schema = _flat({**maker.schema(hint), "$defs": maker.definitions})
    return Form(name, schema, lambda value: structure(fit(value, schema), hint))


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the definition at its top, where engines that constrain their output want it, and no definition unused."""
    flat = dict(resolved(schema, schema))
    definitions = flat.pop("$defs", {})
    used = {name: each for name, each in definitions.items() if f'"#/$defs/{name}"' in json.dumps([flat, definitions])}
    return flat | ({"$defs": used} if used else {})


def one_schema(forms: Iterable[Form]) -> dict[str, Any]:
    """The schema of what has one of the forms.

    Raises:
        ConfigurationError: two forms define different types of one name.
    """
    schemas = [form.schema for form in forms]
    if len(schemas) == 1:
        return schemas[0]
    definitions: dict[str, Any] = {}
    for schema in schemas:
        for name, definition in schema.get("$defs", {}).items():
            if definitions.setdefault(name, definition) != definition:
                raise ConfigurationError(f"two formats have different types that are called {name!r}: rename one of them")
    arms = [{key: value for key, value in schema.items() if key != "$defs"} for schema in schemas]
    return {"anyOf": arms, **({"$defs": definitions} if definitions else {})}


def resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that ``schema`` refers to, or itself."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return {**root.get("$defs", {}).get(name, {}), **{k: v for k, v in schema.items() if k != "$ref"}} if name else schema


def skeleton(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None, indent: str = "", depth: int = 0) -> str:
    """An example of the JSON that fits ``schema``, with types in place of values and comments: what a model is shown."""
    root = schema if root is None else root
    schema = resolved(schema, root)
    properties = schema.get("properties")
    if depth > 5 or not (properties or schema.get("items")):
        return f'"{type_in_words(schema, root)}"'
    inner = indent + "    "
    if not properties:
        return f"[{skeleton(schema['items'], root, indent, depth + 1)}, …]"
    lines = []
    for name, each in properties.items():
        each = resolved(each, root)
        if description := each.get("description"):
            lines.append(f"{inner}// {description}")
        needed = (
            "required"
            if name in schema.get("required", ())
            else f"default: {each['default']}"
            if "default" in each
            else "optional"
        )
        lines.append(f'{inner}"{name}": {skeleton(each, root, inner, depth + 1)},  // {needed}')
    return "\n".join(["{", *lines, indent + "}"])


def type_in_words(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """The type that ``schema`` asks for, in a few words."""
    schema = resolved(schema, root)
    if arms := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(type_in_words(arm, root) for arm in arms))
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
        return " or ".join(map(str, choices))
    kind = schema.get("type", "any value")
    if kind == "array" and schema.get("items"):
        return f"array of {type_in_words(schema['items'], root)}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
