"""Calling models of every kind: lagent's own, those written in the style of lagent 0.5, or any object with the same methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from lagent.flow import Call
from lagent.llms.request import Capabilities
from lagent.schema import ModelChunk, ModelResponse, SessionId

__all__ = ["as_chunk", "as_response", "capabilities_of", "model_call"]


def model_call(llm: Any, method: str, messages: Any, session_id: SessionId, options: dict[str, Any]) -> Call:
    """The call of ``llm.chat`` or ``llm.stream_chat`` that passes the session in the way the method takes it.

    Args:
        llm: the model.
        method: ``"chat"`` or ``"stream_chat"``.
        messages: the model messages.
        session_id: the session.
        options: sampling parameters, tools and the like, passed as they are.
    """
    function = getattr(llm, method)
    name = _session_parameter(getattr(function, "__func__", function), method)
    if name is not None:
        options = {**options, name: session_id}
    return Call(function, (messages,), options, blocking=getattr(llm, "blocking", True))


@functools.lru_cache(maxsize=256)
def _session_parameter(function: Callable[..., Any], method: str) -> str | None:
    """The name under which a method takes the session: lagent 0.5 wrote ``session_ids``, and passed it to streams in ``**kwargs``."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a builtin that does not tell
        return None
    for name in ("session_id", "session_ids"):
        if name in parameters:
            return name
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return "session_id" if takes_any and method == "stream_chat" else None


def capabilities_of(llm: Any) -> Capabilities:
    """What a model declares; a model that declares nothing can chat."""
    declared = getattr(llm, "capabilities", None)
    return declared if isinstance(declared, Capabilities) else _UNDECLARED


_UNDECLARED = Capabilities()


def as_response(value: Any) -> ModelResponse:
    """What ``chat`` gave, as a response."""
    return value if isinstance(value, ModelResponse) else ModelResponse(content=str(value))


def as_chunk(item: Any, so_far: str) -> ModelChunk:
    """What ``stream_chat`` yielded, as an increment.

    Args:
        item: a :class:`ModelChunk`, lagent 0.5's ``(status, text so far, …)``, or a piece of text.
        so_far: the text before it.
    """
    if isinstance(item, ModelChunk):
        return item
    if isinstance(item, str):
        return ModelChunk(item)
    return ModelChunk(item[1][len(so_far) :])
