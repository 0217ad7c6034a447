"""Registering hooks and running them. The only module that knows pluggy's plugin manager."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar

import pluggy
from attrs import define

from lagent.errors import ConfigurationError, HookError
from lagent.flow import Call, Flow
from lagent.hooks import specs
from lagent.hooks.specs import EVENTS
from lagent.schema import SessionId

__all__ = ["Hook", "HookManager", "RemovableHandle", "register_hook"]


class Hook:
    """Base of hooks written as classes: override the methods of the events you want (see :mod:`lagent.hooks.specs`)."""

    blocking: ClassVar[bool] = True
    """Whether methods may wait for something, so that an asynchronous agent has to call them in a thread."""

    def before_agent(self, agent: Any, message: Any, session_id: Any) -> Any:
        """See :func:`lagent.hooks.specs.before_agent`."""

    def after_agent(self, agent: Any, message: Any, session_id: Any) -> Any:
        """See :func:`lagent.hooks.specs.after_agent`."""

    def before_action(self, executor: Any, message: Any, session_id: Any) -> Any:
        """See :func:`lagent.hooks.specs.before_action`."""

    def after_action(self, executor: Any, message: Any, session_id: Any) -> Any:
        """See :func:`lagent.hooks.specs.after_action`."""


class RemovableHandle:
    """Takes a registered hook out again."""

    _ids: ClassVar[Any] = count()

    def __init__(self, hooks: HookManager) -> None:
        self._hooks = hooks
        self.id: int = next(self._ids)

    def remove(self) -> None:
        """Take the hook out; once it is out, nothing."""
        self._hooks.unregister(self.id)


@define
class _Implementation:
    hook: str
    function: Callable[..., Any]
    blocking: bool


class HookManager:
    """The hooks of one agent or executor, or of the process, by event and in the order of their registration."""

    def __init__(self) -> None:
        self._hooks: dict[int, tuple[Any, dict[str, _Implementation]]] = {}
        self._by_event: dict[str, list[_Implementation]] = {}

    def __len__(self) -> int:
        return len(self._hooks)

    def values(self) -> list[Any]:
        """The registered hooks."""
        return [hook for hook, _ in self._hooks.values()]

    def register(self, hook: Any) -> RemovableHandle:
        """Add a hook.

        Raises:
            ConfigurationError: it implements no event, or one in a form that cannot be called.
        """
        implementations = _implementations(hook)
        handle = RemovableHandle(self)
        self._hooks[handle.id] = hook, implementations
        self._order()
        return handle

    def unregister(self, handle_id: int) -> None:
        """Take a hook out; nothing if it is out already."""
        self._hooks.pop(handle_id, None)
        self._order()

    def _order(self) -> None:
        # A new dict, so that a call that is just going through the old one is not disturbed.
        by_event: dict[str, list[_Implementation]] = {}
        for _, implementations in self._hooks.values():
            for event, implementation in implementations.items():
                by_event.setdefault(event, []).append(implementation)
        self._by_event = by_event

    def fire(self, event: str, owner: Any, session_id: SessionId, *value: Any) -> Flow[Any]:
        """Run the hooks of an event, those of the process first.

        Args:
            owner: the agent or executor it happens to.
            value: the object that hooks may replace, if the event has one.

        Returns:
            The object after all hooks.

        Raises:
            HookError: a hook raised.
        """
        for manager in (_process, self):
            for implementation in manager._by_event.get(event, ()):
                try:
                    result = yield Call(implementation.function, (owner, *value, session_id), blocking=implementation.blocking)
                except Exception as error:
                    raise HookError(f"hook {implementation.hook} failed in {event}: {error!r}") from error
                if result is not None and value:
                    one_of_many = isinstance(value[0], list) and not isinstance(result, (list, tuple))
                    value = ([result] if one_of_many else result,)
        return value[0] if value else None

    def heard(self, event: str) -> bool:
        """Whether any hook waits for an event; if not, firing it does nothing, and may be left out."""
        return event in self._by_event or event in _process._by_event


_process = HookManager()


def register_hook(hook: Any) -> RemovableHandle:
    """Add a hook to every agent and executor of the process; it runs before their own.

    Raises:
        ConfigurationError: see :meth:`HookManager.register`.
    """
    return _process.register(hook)


def _implementations(hook: Any) -> dict[str, _Implementation]:
    name = getattr(hook, "__name__", type(hook).__name__)
    blocking = getattr(hook, "blocking", True)
    found: dict[str, _Implementation] = {}
    marked = _marked(hook, name)
    for event in EVENTS:
        function = getattr(hook, event, None)
        if event in marked:
            found[event] = _Implementation(name, marked[event], blocking)
        elif callable(function) and getattr(type(hook), event, None) is not getattr(Hook, event, None):
            found[event] = _Implementation(name, function, blocking)
    if not found:
        raise ConfigurationError(f"{name} is no hook: it has no method named after an event ({', '.join(EVENTS)})")
    return found


def _marked(hook: Any, name: str) -> dict[str, Callable[..., Any]]:
    """The implementations marked with ``hookimpl``, checked by pluggy; a manager for each, so that a failed one leaves nothing."""
    manager = pluggy.PluginManager("lagent")
    manager.add_hookspecs(specs)
    try:
        manager.register(hook, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise ConfigurationError(f"{name} is no valid hook: {error}") from error
    found: dict[str, Callable[..., Any]] = {}
    for caller in manager.get_hookcallers(hook) or ():
        (implementation,) = caller.get_hookimpls()
        if implementation.wrapper or implementation.hookwrapper:
            raise ConfigurationError(
                f"{name}.{caller.name} is a wrapper, which lagent does not run; use a before and an after event"
            )
        found[caller.name] = _by_name(implementation.function, implementation.argnames, _parameters(caller.name))
    return found


def _parameters(event: str) -> list[str]:
    return list(inspect.signature(getattr(specs, event)).parameters)


def _by_name(function: Callable[..., Any], wanted: tuple[str, ...], parameters: list[str]) -> Callable[..., Any]:
    places = [parameters.index(name) for name in wanted]

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*(args[place] for place in places))

    return call
