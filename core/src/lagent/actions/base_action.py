"""Actions: what a model may call, described by the signature and docstring of the methods that do it."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import threading
import types
import typing
from abc import ABCMeta
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, ClassVar, Optional, TypeVar, overload

import attrs
from attrs import define

from lagent import flow
from lagent.actions.docstring import Item, parse_docstring, parse_items
from lagent.actions.json_schema import Schema, default_of, fit, schema_of, structure
from lagent.actions.parser import BaseParser, JsonParser
from lagent.errors import ActionArgumentsError, ConfigurationError, LagentError
from lagent.flow import Call, Flow
from lagent.schema import ActionReturn, ActionStatusCode, SessionId

__all__ = ["AsyncActionMixin", "BaseAction", "ToolMeta", "tool_api"]

F = TypeVar("F", bound=Callable[..., Any])

_LAGENT_TYPES = {"string": "STRING", "integer": "NUMBER", "number": "FLOAT", "boolean": "BOOLEAN", "array": "Array"}
_JSON_TYPES = {lagent: json for json, lagent in _LAGENT_TYPES.items()}
_DOC_TYPES: tuple[type, ...] = (list, dict, str, float, int, bool)


class _Api:
    """One function that a model may call.

    Attributes:
        function: the function.
        description: its description in lagent's form.
        takes_session: it declares a parameter ``session_id``, which the caller gives and the model does not see.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        explode_return: bool = False,
        returns_named_value: bool = False,
        include_arguments: Iterable[str] | None = None,
        exclude_arguments: Iterable[str] | None = None,
    ) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.docs = parse_docstring(function.__doc__, named_returns=returns_named_value)
        signature = inspect.signature(function).parameters
        self.takes_session = "session_id" in signature
        self.open = any(p.kind is p.VAR_KEYWORD for p in signature.values())
        include, exclude = _names(include_arguments), {"self", "session_id", *(_names(exclude_arguments) or ())}
        self.parameters = {
            name: parameter
            for name, parameter in signature.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            and (name in include and name != "session_id" if include is not None else name not in exclude)
        }
        self.required = [name for name, p in self.parameters.items() if p.default is p.empty]
        self.description = self._describe(explode_return, returns_named_value)

    def _describe(self, explode_return: bool, returns_named_value: bool) -> dict[str, Any]:
        properties, definitions = self._properties()
        description: dict[str, Any] = {
            "name": self.name,
            "description": self.docs.text,
            "parameters": [
                {"name": name, "type": _lagent_type(each, definitions), "description": each.get("description", "")}
                for name, each in properties.items()
            ],
            "required": list(self.required),
        }
        returned = self.docs.returns
        if explode_return and returned:
            returned = parse_items([line.lstrip(" -+*#.") for line in returned[0].description.split("\n")[1:]])
        if returned and (explode_return or returns_named_value):
            description["return_data"] = [_described_return(item) for item in returned]
        return description

    def _properties(self) -> tuple[dict[str, Schema], dict[str, Schema]]:
        definitions: dict[str, Schema] = {}
        properties = {}
        for name, parameter in self.parameters.items():
            schema = schema_of(self.hints[name], definitions)
            if parameter.default is not parameter.empty:
                schema |= default_of(parameter.default)
            if name in self.docs.parameters and self.docs.parameters[name].description:
                schema.setdefault("description", self.docs.parameters[name].description)
            properties[name] = schema
        return properties, definitions

    @functools.cached_property
    def schema(self) -> Schema:
        """The JSON schema of the parameters."""
        properties, definitions = self._properties()
        schema: Schema = {"type": "object", "properties": properties, "additionalProperties": self.open}
        if self.required:
            schema["required"] = self.required
        for definition in definitions.values():
            definition.pop("$comment", None)
        return schema | ({"$defs": definitions} if definitions else {})

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """The types of the parameters: those of the signature, else those of the docstring."""
        resolved = _resolved_hints(self.function)
        hints = {}
        for name, parameter in self.parameters.items():
            hint = resolved.get(name, Any)
            if name not in resolved and name in self.docs.parameters:
                hint = _doc_hint(self.docs.parameters[name].type)
            hints[name] = Optional[hint] if parameter.default is None and hint is not Any else hint  # noqa: UP045
        return hints

    def arguments(self, inputs: dict[str, Any], schema: Schema, session_id: SessionId | None) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments for the function.

        Raises:
            ActionArgumentsError: the inputs do not fit the schema, or a class refuses its value.
        """
        inputs = dict(inputs)
        own_session = inputs.pop("session_id", None) if self.takes_session else None
        arguments = fit(inputs, schema, "")
        for name, value in arguments.items():
            try:
                arguments[name] = structure(value, self.hints.get(name, Any))
            except Exception as error:
                raise ActionArgumentsError(f"{name!r} cannot be {value!r:.80}: {error}") from error
        if self.takes_session and (session_id is not None or own_session is not None):
            arguments["session_id"] = session_id if session_id is not None else own_session
        positional = [name for name, p in self.parameters.items() if p.kind is p.POSITIONAL_ONLY and name in arguments]
        return [arguments.pop(name) for name in positional], arguments


def _names(given: Iterable[str] | None) -> set[str] | None:
    return given if given is None else {given} if isinstance(given, str) else set(given)


def _resolved_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a function; those that name what does not exist at run time are left out."""
    function = inspect.unwrap(function)
    annotated: Any = function if hasattr(function, "__annotations__") else type(function).__call__
    hints = {}
    for name, annotation in getattr(annotated, "__annotations__", {}).items():
        holder: Any = types.SimpleNamespace(__annotations__={name: annotation})
        with contextlib.suppress(NameError, AttributeError, TypeError, SyntaxError):
            hints.update(typing.get_type_hints(holder, getattr(annotated, "__globals__", {}), include_extras=True))
    return hints


def _doc_hint(text: str | None) -> Any:
    return next((cls for cls in _DOC_TYPES if cls.__name__ in (text or "").lower()), Any)


def _lagent_type(schema: Schema, definitions: dict[str, Schema]) -> str:
    if "$ref" in schema:
        return _lagent_type(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    arms = [arm for arm in schema.get("anyOf", ()) if arm.get("type") != "null"]
    return _lagent_type(arms[0], definitions) if arms else _LAGENT_TYPES.get(schema.get("type", ""), "STRING")


def _described_return(item: Item) -> dict[str, str]:
    described = {"name": item.name} if item.name else {}
    if item.type:
        described["type"] = _lagent_type(schema_of(_doc_hint(item.type), {}), {})
    return described | {"description": item.description}


@overload
def tool_api(func: F) -> F: ...
@overload
def tool_api(
    func: None = None,
    *,
    explode_return: bool = False,
    returns_named_value: bool = False,
    include_arguments: Iterable[str] | None = None,
    exclude_arguments: Iterable[str] | None = None,
    **kwargs: Any,
) -> Callable[[F], F]: ...
def tool_api(func: F | None = None, **options: Any) -> Any:
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
    if func is None:
        return functools.partial(tool_api, **options)
    known = ("explode_return", "returns_named_value", "include_arguments", "exclude_arguments")
    api = _Api(func, **{name: options[name] for name in known if name in options})
    func.__tool_api__, func.api_description = api, api.description  # type: ignore[attr-defined]
    return func


class ToolMeta(ABCMeta):
    """Collects the APIs of an action class; one that has only an undecorated ``run`` gets it as its API."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:  # noqa: N804
        cls: Any = super().__new__(mcs, name, bases, namespace, **kwargs)
        inherited = {api for base in bases for api in getattr(base, "__apis__", {})}
        members = {key: value for key in (*inherited, *namespace) if callable(value := getattr(cls, key, None))}
        for key in inherited:
            if not hasattr(members[key], "__tool_api__"):
                tool_api(members[key])
        apis = {key: value.__tool_api__ for key, value in members.items() if hasattr(value, "__tool_api__")}
        if not apis and "run" in members:
            apis = {"run": tool_api(members["run"]).__tool_api__}
        if "run" in apis and len(apis) > 1:
            others = ", ".join(repr(key) for key in apis if key != "run")
            raise ConfigurationError(
                f"{name} has 'run' and other tool APIs ({others}): an action is either one tool, with 'run', or a toolkit without it"
            )
        cls.__apis__, cls.__tool_description__ = apis, _describe_class(cls, apis)
        return cls


def _describe_class(cls: type, apis: dict[str, _Api]) -> dict[str, Any]:
    docs = next((base.__doc__ for base in cls.__mro__ if base.__doc__ and base.__name__ not in _BASES), None)
    description = {"name": cls.__name__, "description": parse_docstring(docs).text}
    if apis and "run" not in apis:
        return description | {"api_list": [api.description for api in apis.values()]}
    run = {k: v for k, v in (apis["run"].description if apis else {}).items() if k != "name" and (v or k != "description")}
    return {**description, "parameters": [], "required": [], **run}


_BASES = ("BaseAction", "AsyncActionMixin", "object")


class BaseAction(metaclass=ToolMeta):
    """Base of actions: what a model may call.

    A subclass defines ``run`` (one tool) or several methods marked with :func:`tool_api` (a toolkit); plain or coroutine functions.
    They return text, JSON-like data, a list of content parts (text, images), or an :class:`ActionReturn`. A parameter ``session_id``
    is given by the caller and not shown to the model. ``close_session(session_id)`` and ``close()`` are called if they are there.

    Args:
        description: overrides the name, description and parameters made of the class.
        parser: the class that reads the inputs and writes the outputs.
        timeout: the seconds that a call may take; see :class:`_Timed`.

    Attributes:
        examples: for the model: a list of ``{"question", "arguments", "result", "answer"}``, in a toolkit one for each API by name.
    """

    __apis__: ClassVar[dict[str, _Api]]
    __tool_description__: ClassVar[dict[str, Any]]
    examples: Any = ()
    timeout: float | None = None

    def __init__(
        self,
        description: dict[str, Any] | None = None,
        parser: Callable[[Any], BaseParser] = JsonParser,
        timeout: float | None = None,
    ) -> None:
        self._description = copy.deepcopy({**self.__tool_description__, **(description or {})})
        self._parser = parser(self)
        if timeout is not None:
            self.timeout = timeout

    def __call__(self, inputs: Any, name: str = "run", session_id: SessionId | None = None) -> Any:
        """Call the API ``name`` with what a model wrote.

        Args:
            inputs: the arguments in the form that the parser reads.
            session_id: for APIs that declare it; else ``inputs`` may hold it.

        Returns:
            The :class:`ActionReturn`; every error becomes its ``state`` and ``errmsg``. Awaitable with :class:`AsyncActionMixin`.
        """
        return flow.run(self.steps(inputs, name, session_id))

    def steps(self, inputs: Any, name: str = "run", session_id: SessionId | None = None) -> Flow[ActionReturn]:
        """:meth:`__call__` as a flow, for callers of either colour."""
        failed = ActionReturn({"inputs": inputs, "name": name}, type=self.name, state=ActionStatusCode.ARGS_ERROR)
        if (api := self.__apis__.get(name)) is None:
            known = ", ".join(map(repr, self.__apis__)) or "none"
            error = f"invalid API: {name!r} of {self.name}, which has {known}"
            return attrs.evolve(failed, state=ActionStatusCode.API_ERROR, errmsg=error)
        try:
            inputs = self._parser.parse_inputs(inputs, name)
            args, kwargs = api.arguments(inputs, self.schema(name), session_id)
        except Exception as error:
            return attrs.evolve(failed, errmsg=_in_words(error))
        failed = attrs.evolve(failed, args=inputs, state=ActionStatusCode.API_ERROR)
        try:
            call = Call(getattr(self, name), tuple(args), kwargs, blocking=True, session_id=session_id)
            outputs = yield _Timed(call, self.timeout) if self.timeout is not None else call
            if isinstance(outputs, ActionReturn):
                return attrs.evolve(outputs, args=outputs.args or inputs, type=outputs.type or self.name)
            return ActionReturn(inputs, type=self.name, result=self._parser.parse_outputs(outputs))
        except (Exception, SystemExit) as error:
            return attrs.evolve(failed, errmsg=_in_words(error))

    @property
    def name(self) -> str:
        """The name under which an executor offers the action."""
        return str(self._description["name"])

    @property
    def is_toolkit(self) -> bool:
        """Whether the action has several APIs, rather than the one ``run``."""
        return "api_list" in self._description

    @property
    def description(self) -> dict[str, Any]:
        """The description in lagent's form: name, description, and parameters and required, or the ``api_list`` of a toolkit."""
        return self._description

    def schema(self, api: str = "run") -> Schema:
        """The JSON schema of the parameters of an API.

        Raises:
            KeyError: the action has no such API.
        """
        schema, described = copy.deepcopy(self.__apis__[api].schema), self.describe(api)
        own = schema["properties"]
        schema["properties"] = {
            p["name"]: own.get(p["name"], {"type": _JSON_TYPES[p["type"]]} if p.get("type") in _JSON_TYPES else {})
            | ({"description": p["description"]} if p.get("description") else {})
            for p in described["parameters"]
        }
        schema.pop("required", None)
        return schema | ({"required": list(described["required"])} if described["required"] else {})

    def describe(self, api: str = "run") -> dict[str, Any]:
        """The description of one API in lagent's form."""
        return next((each for each in self._description.get("api_list", ()) if each["name"] == api), self._description)

    def __repr__(self) -> str:
        return f"{self.description}"


class AsyncActionMixin:
    """Makes calling an action awaitable; goes before the base class."""

    async def __call__(self: Any, inputs: Any, name: str = "run", session_id: SessionId | None = None) -> ActionReturn:
        """See :meth:`BaseAction.__call__`."""
        return await flow.arun(self.steps(inputs, name, session_id))


class FunctionAction(BaseAction):
    """A plain function as an action, named after it."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        api = _Api(function)
        self.__apis__ = {"run": api}  # type: ignore[misc]
        self.__tool_description__ = api.description  # type: ignore[misc]
        self.run = function
        super().__init__(**options)


def _in_words(error: BaseException) -> str:
    return str(error) if isinstance(error, LagentError) else f"{type(error).__name__}: {error}".rstrip(": ")


@define
class _Timed:
    """A call that is given up after some seconds: a coroutine is cancelled, a thread left to itself (it cannot be stopped).

    Raises:
        TimeoutError: the time is over.
    """

    call: Call
    seconds: float

    def run(self) -> Any:
        return Call(self.arun).run()

    async def arun(self) -> Any:
        coroutine = inspect.iscoroutinefunction(self.call.function)
        work = asyncio.ensure_future(self.call.arun() if coroutine else asyncio.wrap_future(self._thread()))
        try:
            await asyncio.wait({work}, timeout=self.seconds)
            if work.done():
                return work.result()
            raise TimeoutError(f"no result within {self.seconds:g} seconds")
        finally:
            work.cancel()

    def _thread(self) -> Future[Any]:
        # A thread of its own, not one of a pool: calls that hang would use the pool up and keep the program from ending.
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        context = copy_context()

        def work() -> None:
            try:
                future.set_result(context.run(self.call.run))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, name="lagent-action", daemon=True).start()
        return future
