"""Actions: what a model may call."""

from __future__ import annotations

import copy
from abc import ABCMeta
from collections.abc import Callable
from typing import Any, ClassVar

import attrs

from lagent import flow
from lagent.actions.docstring import parse_docstring
from lagent.actions.json_schema import Schema
from lagent.actions.parser import BaseParser, JsonParser
from lagent.actions.time_limit import Limited
from lagent.actions.tool_function import LAGENT_TYPES, ToolFunction, tool_api
from lagent.errors import ConfigurationError, LagentError
from lagent.flow import Call, Flow
from lagent.schema import ActionReturn, ActionStatusCode, SessionId

__all__ = ["AsyncActionMixin", "BaseAction", "FunctionAction", "ToolMeta", "tool_api"]

_JSON_TYPES = {lagent: json for json, lagent in LAGENT_TYPES.items()}


class ToolMeta(ABCMeta):
    """Collects the APIs of an action class, inherited ones included; an undecorated ``run`` is one if there is no other."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:
        cls: Any = super().__new__(mcs, name, bases, namespace, **kwargs)
        inherited = {key for base in bases for key in getattr(base, "__tools__", ())}
        members: dict[str, Any] = {key: getattr(cls, key, None) for base in reversed(cls.__mro__) for key in vars(base)}
        apis = {
            k: member for k, member in members.items() if hasattr(member, "__tool__") or (k in inherited and callable(member))
        }
        if not apis and callable(members.get("run")):
            apis = {"run": members["run"]}
        if "run" in apis and len(apis) > 1:
            raise ConfigurationError(
                f"{name} has 'run' and other tool APIs ({', '.join(key for key in apis if key != 'run')}): "
                "an action is either one tool, its 'run', or a toolkit without it"
            )
        if taken := [key for key in apis if hasattr(BaseAction, key)]:
            raise ConfigurationError(
                f"{name} cannot have a tool API {taken[0]!r}: every action has that attribute, choose another name"
            )
        cls.__tools__ = {key: getattr(api, "__tool__", None) or ToolFunction(api) for key, api in apis.items()}
        return cls


def _describe(cls: Any) -> dict[str, Any]:
    """The description of an action class by its docstring and APIs."""
    tools: dict[str, ToolFunction] = cls.__tools__
    own = (base for base in cls.__mro__ if issubclass(base, BaseAction) and base is not BaseAction)
    docs = next(filter(None, (base.__doc__ for base in own)), None)
    described = {"name": cls.__name__, "description": parse_docstring(docs).text}
    if tools and "run" not in tools:
        return described | {"api_list": [tool.description() for tool in tools.values()]}
    run = tools["run"].description() if tools else {"parameters": [], "required": []}
    return described | {key: value for key, value in run.items() if key != "name" and value != ""}


class BaseAction(metaclass=ToolMeta):
    """Base of actions: what a model may call.

    A subclass defines ``run`` (one tool) or several methods marked with :func:`tool_api` (a toolkit); plain or coroutine functions.
    They return text, data (given to the model as JSON), a list of content parts such as images, or an :class:`ActionReturn`. A parameter
    ``session_id`` is given by the caller and not shown to the model. An executor calls ``close_session(session_id)`` and ``close()``
    of an action that has them.

    Args:
        description: overrides the name, description and parameters that the class has by its signature and docstrings.
        parser: the class that reads the inputs and writes the outputs.
        timeout: the seconds that a call may take. At the limit a coroutine is cancelled; a plain function goes on in its thread,
            as nothing can stop it, but its result is dropped.

    Attributes:
        examples: for the model: a list of ``{"question", "arguments", "result", "answer"}``; in a toolkit, a dict of such lists by API.
    """

    __tools__: ClassVar[dict[str, ToolFunction]]
    examples: ClassVar[Any] = ()
    timeout: float | None = None

    def __init__(
        self,
        description: dict[str, Any] | None = None,
        parser: Callable[[Any], BaseParser] = JsonParser,
        timeout: float | None = None,
    ) -> None:
        self._description: dict[str, Any] = copy.deepcopy({**_describe(type(self)), **(description or {})})
        self._parser = parser(self)
        self._schemas: dict[str, Schema] = {}
        if timeout is not None:
            self.timeout = timeout

    def __call__(self, inputs: Any, name: str = "run", session_id: SessionId | None = None) -> Any:
        """Call an API with what a model wrote.

        Args:
            inputs: the arguments in the form that the parser reads.
            name: the API.
            session_id: for APIs that declare it; else ``inputs`` may hold it.

        Returns:
            The :class:`ActionReturn`, awaitable with :class:`AsyncActionMixin`. Every error becomes its ``state`` and ``errmsg``.
        """
        return flow.run(self.steps(inputs, name, session_id))

    def steps(self, inputs: Any, name: str = "run", session_id: SessionId | None = None) -> Flow[ActionReturn]:
        """:meth:`__call__` as a flow, for callers of either colour."""
        failed = ActionReturn({"inputs": inputs, "name": name}, type=self.name, state=ActionStatusCode.ARGS_ERROR)
        if (tool := self.__tools__.get(name)) is None:
            known = ", ".join(self.__tools__) or "none"
            return attrs.evolve(failed, errmsg=f"invalid API: {name} (known: {known})", state=ActionStatusCode.API_ERROR)
        try:
            inputs = self._parser.parse_inputs(inputs, name)
            args, kwargs = tool.arguments(inputs, self.schema(name), session_id)
        except Exception as error:
            return attrs.evolve(failed, errmsg=_in_words(error))
        try:
            call = Call(getattr(self, name), args, kwargs, blocking=True, session_id=session_id)
            outputs = yield call if self.timeout is None else Limited(call, self.timeout)
            if isinstance(outputs, ActionReturn):
                return attrs.evolve(outputs, args=outputs.args or inputs, type=outputs.type or self.name)
            return ActionReturn(inputs, type=self.name, result=self._parser.parse_outputs(outputs))
        except (Exception, SystemExit) as error:
            return attrs.evolve(failed, args=inputs, errmsg=_in_words(error), state=ActionStatusCode.API_ERROR)

    @property
    def name(self) -> str:
        """The name that the action gives itself."""
        return str(self._description["name"])

    @property
    def is_toolkit(self) -> bool:
        """Whether the action has several APIs rather than one ``run``."""
        return "api_list" in self._description

    @property
    def description(self) -> dict[str, Any]:
        """The description in lagent's form: name, description, and parameters and required, or the ``api_list`` of a toolkit."""
        return self._description

    def schema(self, api: str = "run") -> Schema:
        """The JSON schema of the parameters of an API; the same object every time, not to be changed.

        Raises:
            KeyError: the action has no such API.
        """
        if api not in self._schemas:
            schema, described = copy.deepcopy(self.__tools__[api].schema), self.described(api)
            known = schema["properties"]
            schema["properties"] = {
                parameter["name"]: known.get(parameter["name"], {"type": _JSON_TYPES.get(parameter.get("type"), "string")})
                | ({"description": parameter["description"]} if parameter.get("description") else {})
                for parameter in described["parameters"]
            }
            self._schemas[api] = schema | {"required": list(described["required"])}
        return self._schemas[api]

    def described(self, api: str = "run") -> dict[str, Any]:
        """The description of one API in lagent's form."""
        return next((each for each in self._description.get("api_list", ()) if each["name"] == api), self._description)

    def __repr__(self) -> str:
        return repr(self.description)


class AsyncActionMixin:
    """Makes calling an action awaitable; goes before the base class."""

    async def __call__(self: Any, inputs: Any, name: str = "run", session_id: SessionId | None = None) -> ActionReturn:
        """See :meth:`BaseAction.__call__`."""
        result: ActionReturn = await flow.arun(self.steps(inputs, name, session_id))
        return result


class FunctionAction(BaseAction):
    """A function as an action of its name.

    Args:
        function: a plain or coroutine function.
        description, parser, timeout: see :class:`BaseAction`.
    """

    def __init__(self, function: Callable[..., Any], description: dict[str, Any] | None = None, **options: Any) -> None:
        tool = ToolFunction(function)
        self.__tools__ = {"run": tool}  # type: ignore[misc]
        self.run = function
        super().__init__({**tool.description(), **(description or {})}, **options)


def _in_words(error: BaseException) -> str:
    return str(error) if isinstance(error, LagentError) else f"{type(error).__name__}: {error}".removesuffix(": ")
