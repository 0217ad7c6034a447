"""Runs the action that a message names."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from lagent import flow
from lagent.actions.base_action import AsyncActionMixin, BaseAction, FunctionAction
from lagent.actions.builtin_actions import FinishAction, InvalidAction, NoAction
from lagent.errors import ActionArgumentsError, ConfigurationError
from lagent.flow import Call, Flow
from lagent.schema import ActionReturn, AgentMessage, FunctionCall, SessionId

if TYPE_CHECKING:
    from lagent.hooks import RemovableHandle

__all__ = ["ActionExecutor", "AsyncActionExecutor", "tool_name"]


@functools.lru_cache(maxsize=4096)
def tool_name(name: str) -> str:
    """The name of an action under OpenAI's rules for function names (``[a-zA-Z0-9_-]{1,64}``).

    The dot between a toolkit and its API becomes ``-``, any other character that is not allowed ``-`` and its code point in
    hexadecimal; a longer name is cut and ends in a checksum. Executors know the way back.
    """
    encoded = re.sub(r"[^a-zA-Z0-9_-]", lambda match: f"-{ord(match[0]):x}", name.replace(".", "-"))
    return encoded if len(encoded) <= 64 else f"{encoded[:55]}-{zlib.crc32(name.encode()):08x}"


class ActionExecutor:
    """Runs the action that a message names and gives its result as a message. Actions may be plain or asynchronous.

    Args:
        actions: one or a list of actions, functions (plain or coroutine), names, or ``{"type": …, **arguments}``.
        invalid_action: runs when the message names no known action.
        no_action, finish_action: run when they are named, whether they are in the list or not.
        finish_in_action: put ``finish_action`` into the list, so that the model is told of it.
        hooks: what runs before and after each action; see :mod:`lagent.hooks`.

    Raises:
        ConfigurationError: two actions have the same name, or something is no action.
    """

    def __init__(
        self,
        actions: Any = (),
        invalid_action: Any = InvalidAction,
        no_action: Any = NoAction,
        finish_action: Any = FinishAction,
        finish_in_action: bool = False,
        hooks: Any = (),
    ) -> None:
        from lagent.hooks import HookManager  # hooks are above actions in the order of imports

        self.invalid_action = _action(invalid_action)
        self.no_action = _action(no_action)
        self.finish_action = _action(finish_action)
        self.actions: dict[str, BaseAction] = {}
        given = actions if isinstance(actions, (list, tuple)) else [] if actions is None else [actions]
        for action in map(_action, [*given, *([self.finish_action] if finish_in_action else [])]):
            if action.name in self.actions:
                raise ConfigurationError(f"two actions are called {action.name!r}: give one another name (description=)")
            self.actions[action.name] = action
        self._routes()
        self._hooks = HookManager()
        for hook in hooks or ():
            self.register_hook(hook)

    def __call__(self, message: AgentMessage, session_id: SessionId = 0, **kwargs: Any) -> Any:
        """Run the action that ``message.content`` names, a :class:`FunctionCall` or ``{"name": …, "parameters": …}``.

        Args:
            session_id: given to actions that declare it, and to hooks.

        Returns:
            A message of this executor with the :class:`ActionReturn` as content; errors of the action are in there.

        Raises:
            ActionArgumentsError: the content, after the hooks, is no call.
            HookError: a hook raised.
        """
        return flow.run(self.steps(message, session_id, **kwargs))

    def forward(self, name: str, parameters: Any, session_id: SessionId = 0, **kwargs: Any) -> Any:
        """Run an action by name, without hooks. A subclass may override it."""
        return flow.run(self._dispatch(name, parameters, session_id))

    def steps(self, message: AgentMessage, session_id: SessionId = 0, **kwargs: Any) -> Flow[AgentMessage]:
        """:meth:`__call__` as a flow, for callers of either colour."""
        if self._hooks.heard("before_action"):
            message = message.model_copy(deep=True)  # hooks may change it, and it is the caller's
        message = yield from self._hooks.fire("before_action", self, session_id, message)
        name, parameters = _call_in(message.content)
        result: Any
        if type(self).forward in (ActionExecutor.forward, AsyncActionExecutor.forward):
            result = yield from self._dispatch(name, parameters, session_id)
        else:
            result = yield Call(self.forward, (name, parameters), kwargs, blocking=True, session_id=session_id)
        if not isinstance(result, AgentMessage):
            result = AgentMessage(sender=type(self).__name__, content=result)
        answer: AgentMessage = yield from self._hooks.fire("after_action", self, session_id, result)
        return answer

    def _dispatch(self, name: str, parameters: Any, session_id: SessionId) -> Flow[ActionReturn]:
        if (route := self._find(name)) is not None:
            action, api = route
        elif name in (self.no_action.name, self.finish_action.name):
            action, api = self.no_action if name == self.no_action.name else self.finish_action, "run"
        else:
            result = yield from self.invalid_action.steps(None, "run", session_id)
            known = ", ".join(name for name, _, _ in self._apis()) or "none"
            errmsg = f"{result.errmsg} There is no {name!r}; there are: {known}."
            return attrs.evolve(result, args={"name": name, "parameters": parameters}, errmsg=errmsg)
        if type(action).__call__ in (BaseAction.__call__, AsyncActionMixin.__call__):
            return (yield from action.steps(parameters, api, session_id))
        returned: ActionReturn = yield Call(action, (parameters, api), blocking=True, session_id=session_id)
        return returned

    def _find(self, name: str) -> tuple[BaseAction, str] | None:
        """The action and API that a call names; the action may turn out not to have that API."""
        head, _, api = name.rpartition(".")
        if name in self.actions:
            return self.actions[name], "run"
        if head in self.actions:
            return self.actions[head], api
        return self._routes().get(name)

    def _routes(self) -> dict[str, tuple[BaseAction, str]]:
        """Each API by its name and by that name under OpenAI's rules.

        Raises:
            ConfigurationError: two of them have the same name under OpenAI's rules.
        """
        routes: dict[str, tuple[BaseAction, str]] = {}
        for name, action, api in self._apis():
            for alias in {name, tool_name(name)}:
                if alias in routes:
                    raise ConfigurationError(f"{name!r} and another action are both called {alias!r}: give one another name")
                routes[alias] = action, api
        return routes

    def _apis(self) -> Iterator[tuple[str, BaseAction, str]]:
        """Each API with its name: that of the action, or in a toolkit ``Toolkit.api``."""
        for key, action in self.actions.items():
            for api in action.__tools__:
                yield f"{key}.{api}" if action.is_toolkit else key, action, api

    def description(self) -> list[dict[str, Any]]:
        """The descriptions of all APIs in lagent's form, those of toolkits named ``Toolkit.api``."""
        return [{**action.described(api), "name": name} for name, action, api in self._apis()]

    def tools(self) -> list[dict[str, Any]]:
        """All APIs as OpenAI's function schemas, named by :func:`tool_name`, with the ``examples`` of actions that have some.

        The schemas of the parameters are those of the actions, not to be changed.
        """
        tools = []
        for name, action, api in self._apis():
            described = action.described(api)["description"]
            function = {"name": tool_name(name), "description": described, "parameters": action.schema(api)}
            if examples := action.examples.get(api) if isinstance(action.examples, Mapping) else action.examples:
                function["examples"] = list(examples)
            tools.append({"type": "function", "function": function})
        return tools

    def __contains__(self, name: str) -> bool:
        return name in self.actions

    def keys(self) -> list[str]:
        """The names of the actions."""
        return list(self.actions)

    def __setitem__(self, name: str, action: Any) -> None:
        self.actions[name] = _action(action)

    def __delitem__(self, name: str) -> None:
        del self.actions[name]

    def register_hook(self, hook: Any) -> RemovableHandle:
        """Add a hook, an object or a name; ``remove()`` of the result takes it out again."""
        from lagent.registry import create

        return self._hooks.register(create("hooks", hook))

    def close_session(self, session_id: SessionId) -> Any:
        """Let every action release what it holds for a session."""
        return flow.run(self._closing("close_session", session_id))

    def close(self) -> Any:
        """Let every action release what it holds."""
        return flow.run(self._closing("close"))

    def _closing(self, method: str, *args: Any) -> Flow[None]:
        """Call a method of all actions that have it; the first error is raised when all were called."""
        errors = []
        own = (self.invalid_action, self.no_action, self.finish_action)
        for action in {id(action): action for action in (*self.actions.values(), *own)}.values():
            if (function := getattr(action, method, None)) is not None:
                try:
                    yield Call(function, args, blocking=True)
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]


class AsyncActionExecutor(ActionExecutor):
    """:class:`ActionExecutor` with awaitable calls."""

    async def __call__(self, message: AgentMessage, session_id: SessionId = 0, **kwargs: Any) -> AgentMessage:
        """See :meth:`ActionExecutor.__call__`."""
        return await flow.arun(self.steps(message, session_id, **kwargs))

    async def forward(self, name: str, parameters: Any, session_id: SessionId = 0, **kwargs: Any) -> Any:
        """See :meth:`ActionExecutor.forward`."""
        return await flow.arun(self._dispatch(name, parameters, session_id))

    async def close_session(self, session_id: SessionId) -> None:
        """See :meth:`ActionExecutor.close_session`."""
        await flow.arun(self._closing("close_session", session_id))

    async def close(self) -> None:
        """See :meth:`ActionExecutor.close`."""
        await flow.arun(self._closing("close"))


def _action(spec: Any) -> BaseAction:
    from lagent.registry import create

    action = create("actions", spec)
    if isinstance(action, BaseAction):
        return action
    if callable(action):
        return FunctionAction(action)
    raise ConfigurationError(f"{spec!r:.80} is no action: give an action, a function, a registered name or {{'type': …}}")


def _call_in(content: Any) -> tuple[str, Any]:
    if isinstance(content, FunctionCall):
        return content.name, content.parameters
    if isinstance(content, Mapping) and isinstance(content.get("name"), str) and "parameters" in content:
        return content["name"], content["parameters"]
    raise ActionArgumentsError(
        f"the content of a message to an executor should be {{'name': …, 'parameters': …}} or a FunctionCall, got {content!r:.200}"
    )
