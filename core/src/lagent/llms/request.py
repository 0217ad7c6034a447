"""What a model can do, and what it is asked to do."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from lagent.schema import SessionId

__all__ = ["Capabilities", "Message", "ModelRequest", "is_image", "without_examples"]

Message = dict[str, Any]


@define(frozen=True)
class Capabilities:
    """What a model can do by itself. What it lacks is emulated or refused before the call, never dropped.

    Attributes:
        system_role: takes system messages (else their text is put before the first user message).
        tools: takes ``tools`` and answers with :attr:`ModelResponse.tool_calls`.
        json_schema: constrains its output to ``output_schema``.
        grammar: constrains its output to the sampling parameter ``grammar``.
        streaming: yields its answer as it is written (else in one piece).
        images: takes images among the content parts.
        logprobs: returns log-probabilities on request.
        raw_prompts: continues a plain text (:meth:`BaseLLM.generate`).
        prefix_caching: reuses the work done on a common beginning of prompts.
        reasoning: gives its reasoning apart from its text.
    """

    system_role: bool = True
    tools: bool = False
    json_schema: bool = False
    grammar: bool = False
    streaming: bool = False
    images: bool = False
    logprobs: bool = False
    raw_prompts: bool = False
    prefix_caching: bool = False
    reasoning: bool = False


@define
class ModelRequest:
    """One request to a model.

    Attributes:
        messages: the conversation in OpenAI's form; not to be changed.
        prompt: the text to continue, where the request is for raw text or a ``meta_template`` rendered ``messages``.
        session_id: whose request it is.
        request_id: unique for every request and every retry; the only id that an engine may see.
        tools: function schemas in OpenAI's form, ``{"type": "function", "function": {"name", "description", "parameters"}}``.
        tool_choice: ``"auto"``, ``"none"``, ``"required"`` or ``{"type": "function", "function": {"name": …}}``.
        output_schema: JSON schema that the answer has to follow.
        params: sampling parameters under lagent's names, defaults of the model included.
    """

    messages: list[Message] = field(factory=list)
    prompt: str | None = None
    session_id: SessionId = 0
    request_id: str = field(factory=lambda: uuid.uuid4().hex)
    tools: list[Message] | None = None
    tool_choice: str | Message | None = None
    output_schema: dict[str, Any] | None = None
    params: dict[str, Any] = field(factory=dict)


def is_image(part: Mapping[str, Any]) -> bool:
    """Whether a content part in OpenAI's form is an image."""
    return "image" in str(part.get("type"))


def without_examples(tool: Mapping[str, Any]) -> dict[str, Any]:
    """``tool`` as chat templates know it: function schemas in OpenAI's form have no ``examples``."""
    return {**tool, "function": {name: value for name, value in tool["function"].items() if name != "examples"}}
