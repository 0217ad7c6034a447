"""Functions as tools: described by signature and docstring, called with checked arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Optional, TypeVar, overload

from lagent.actions.arguments import fit, structure
from lagent.actions.docstring import Item, parse_docstring, parse_items
from lagent.actions.json_schema import Schema, SchemaMaker, default_of, resolved_hints
from lagent.errors import ActionArgumentsError
from lagent.schema import SessionId

__all__ = ["LAGENT_TYPES", "ToolFunction", "tool_api"]

F = TypeVar("F", bound=Callable[..., Any])

LAGENT_TYPES = {"string": "STRING", "integer": "NUMBER", "number": "FLOAT", "boolean": "BOOLEAN", "array": "Array"}
"""What lagent calls the types of JSON."""

_DOC_TYPES: tuple[type, ...] = (list, dict, str, float, int, bool)


class ToolFunction:
    """A function that a model may call.

    Args:
        function: a plain or coroutine function. The parameter ``session_id`` is not described, as the caller gives it, and neither are
            those that a :func:`functools.partial` gives.
        explode_return, returns_named_value, include_arguments, exclude_arguments: see :func:`tool_api`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        explode_return: bool = False,
        returns_named_value: bool = False,
        include_arguments: Iterable[str] | None = None,
        exclude_arguments: Iterable[str] = (),
    ) -> None:
        signature = inspect.signature(function).parameters
        included = signature if include_arguments is None else _names(include_arguments)
        bound = function.keywords if isinstance(function, functools.partial) else {}
        target = function.func if isinstance(function, functools.partial) else function
        self._name = getattr(target, "__name__", type(target).__name__)
        self._docs = parse_docstring(target.__doc__, named_returns=returns_named_value)
        self._annotated = inspect.unwrap(target) if inspect.isroutine(target) else type(target).__call__
        self._return_options = explode_return, returns_named_value
        self._takes_session = "session_id" in signature
        self._open = any(p.kind is p.VAR_KEYWORD for p in signature.values())
        self._parameters = {
            name: p
            for name, p in signature.items()
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            and name in included
            and name not in {"self", "session_id", *bound, *_names(exclude_arguments)}
        }
        self._required = [name for name, p in self._parameters.items() if p.default is p.empty]

    def description(self) -> dict[str, Any]:
        """The description in lagent's form: name, description, parameters, required and, if asked for, return_data."""
        maker = SchemaMaker()
        properties = self._properties(maker, self._hints())
        described: dict[str, Any] = {
            "name": self._name,
            "description": self._docs.text,
            "parameters": [
                {"name": name, "type": _lagent_type(each, maker), "description": each.get("description", "")}
                for name, each in properties.items()
            ],
            "required": list(self._required),
        }
        explode, named = self._return_options
        returned = self._docs.returns
        if explode and returned:
            returned = parse_items([line.lstrip(" -+*#.") for line in returned[0].description.split("\n")[1:]])
        if returned and (explode or named):
            described["return_data"] = [_described_return(item) for item in returned]
        return described

    @functools.cached_property
    def schema(self) -> Schema:
        """The JSON schema of the parameters."""
        maker = SchemaMaker()
        properties = self._properties(maker, self.hints)
        schema: Schema = {"type": "object", "properties": properties, "additionalProperties": self._open}
        return (
            schema
            | ({"required": self._required} if self._required else {})
            | ({"$defs": maker.definitions} if maker.definitions else {})
        )

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """The types of the parameters, resolved at the first use, when all that they name is defined."""
        return self._hints()

    def _hints(self) -> dict[str, Any]:
        resolved = resolved_hints(self._annotated)
        hints = {}
        for name, parameter in self._parameters.items():
            hint = resolved[name] if name in resolved else _doc_hint(self._docs.parameters.get(name, Item()).type)
            hints[name] = Optional[hint] if parameter.default is None and hint is not Any else hint  # noqa: UP045
        return hints

    def _properties(self, maker: SchemaMaker, hints: dict[str, Any]) -> dict[str, Schema]:
        properties = {}
        for name, parameter in self._parameters.items():
            properties[name] = maker.schema(hints[name])
            if parameter.default is not parameter.empty:
                properties[name] |= default_of(parameter.default)
            if text := self._docs.parameters.get(name, Item()).description:
                properties[name].setdefault("description", text)
        return properties

    def arguments(
        self, inputs: dict[str, Any], schema: Schema, session_id: SessionId | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments to call the function with.

        Args:
            inputs: what the model gave; ``session_id`` counts where the caller names none.
            schema: what the inputs have to fit.

        Raises:
            ActionArgumentsError: the inputs do not fit, or a class refuses its value.
        """
        inputs = dict(inputs)
        session = inputs.pop("session_id", None) if self._takes_session else None
        arguments = fit(inputs, schema)
        for name, value in arguments.items():
            try:
                arguments[name] = structure(value, self.hints.get(name, Any))
            except Exception as error:
                raise ActionArgumentsError(f"argument {name!r} cannot be {value!r:.80}: {error}") from error
        session = session if session_id is None else session_id
        if self._takes_session and session is not None:
            arguments["session_id"] = session
        positional = [name for name, p in self._parameters.items() if p.kind is p.POSITIONAL_ONLY and name in arguments]
        return tuple(arguments.pop(name) for name in positional), arguments


@overload
def tool_api(func: F) -> F: ...
@overload
def tool_api(func: None = None, **options: Any) -> Callable[[F], F]: ...
def tool_api(
    func: F | None = None,
    *,
    explode_return: bool = False,
    returns_named_value: bool = False,
    include_arguments: Iterable[str] | None = None,
    exclude_arguments: Iterable[str] | None = (),
    **kwargs: Any,
) -> Any:
    """Mark a method, plain or coroutine, as an API of its action, described by its type hints and docstring.

    The description in lagent's form becomes the attribute ``api_description`` of the method. Type hints come before the docstring,
    which may be in the style of Google, NumPy or Sphinx; a hint that cannot be resolved at run time counts as none.

    Args:
        func: the method, when used without parentheses.
        explode_return: put the entries of the returned dictionary, as the docstring lists them, into ``return_data``.
        returns_named_value: read ``thing: text`` in the docstring's results as a name, and put the results into ``return_data``.
        include_arguments: the only parameters to describe.
        exclude_arguments: parameters to leave out.
        kwargs: options of lagent's docstring parser; accepted for its sake.
    """

    def mark(function: F) -> F:
        tool = ToolFunction(function, explode_return, returns_named_value, include_arguments, exclude_arguments or ())
        function.__tool__, function.api_description = tool, tool.description()  # type: ignore[attr-defined]
        return function

    return mark if func is None else mark(func)


def _names(given: Iterable[str]) -> set[str]:
    return {given} if isinstance(given, str) else set(given)


def _doc_hint(text: str | None) -> Any:
    return next((cls for cls in _DOC_TYPES if cls.__name__ in (text or "").lower()), Any)


def _lagent_type(schema: Schema, maker: SchemaMaker) -> str:
    if "$ref" in schema:
        return _lagent_type(maker.definitions[schema["$ref"].rpartition("/")[2]], maker)
    arms = [arm for arm in schema.get("anyOf", ()) if arm.get("type") != "null"]
    return _lagent_type(arms[0], maker) if arms else LAGENT_TYPES.get(schema.get("type", ""), "STRING")


def _described_return(item: Item) -> dict[str, str]:
    maker = SchemaMaker()
    type_ = {"type": _lagent_type(maker.schema(_doc_hint(item.type)), maker)} if item.type else {}
    return {**({"name": item.name} if item.name else {}), "description": item.description, **type_}
