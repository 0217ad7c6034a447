"""Objects as plain data, and copies that share nothing."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

__all__ = ["own_copy", "to_data"]


def to_data(value: Any) -> Any:
    """Turn ``value`` into JSON-safe data: attrs, dataclass, pydantic and msgspec objects become dicts, sets and tuples lists.

    Integer enums stay as they are, since :mod:`json` writes them as numbers; any other unknown object becomes ``str(value)``.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value.value if isinstance(value, Enum) else str(value)
    if isinstance(value, Mapping):
        return {str(to_data(key)): to_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_data(item) for item in value]
    if isinstance(value, Enum):
        return to_data(value.value)
    if attrs.has(type(value)):
        return {a.name: to_data(getattr(value, a.name)) for a in attrs.fields(type(value))}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if not isinstance(value, type) and (names := getattr(value, "__struct_fields__", None)) is not None:  # msgspec
        return {name: to_data(getattr(value, name)) for name in names}
    if callable(dump := getattr(value, "model_dump", None)):
        return to_data(dump())
    return str(value)


def own_copy(value: Any) -> Any:
    """A copy of ``value`` that shares nothing mutable with it; as cheap as its containers are few."""
    if value is None or isinstance(value, (str, int, float, Enum)):
        return value
    if type(value) is dict:
        return {key: own_copy(item) for key, item in value.items()}
    if type(value) is list:
        return [own_copy(item) for item in value]
    return copy.deepcopy(value)
