"""Chat Completions and Completions: what a request's body holds and what the server's answer says.

Source of both formats: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define

from lagent.errors import EngineError, ModelConfigurationError
from lagent.llms import ModelRequest
from lagent.schema import ModelChunk, ModelResponse, ToolCall, ToolCallDelta, Usage
from lagent_openai.dialects import Dialect

__all__ = ["CHAT", "COMPLETIONS", "Api", "parse_arguments", "plain_function", "schema_name"]

Data = dict[str, Any]


@define(frozen=True)
class Api:
    """One of the ways to ask a server for an answer; all functions are pure.

    Attributes:
        path: where requests go, below the base URL.
        body: the body of a request: of the request, the model's name, the dialect, and whether the answer is to be streamed.
        read: the answer that a body holds.
        read_event: what one event of a streamed answer adds; it may be nothing.
    """

    path: str
    body: Callable[[ModelRequest, str, Dialect, bool], Data]
    read: Callable[[Data, Dialect], ModelResponse]
    read_event: Callable[[Data, Dialect], ModelChunk]


# Requests --------------------------------------------------------------------------------------------------------


def _body(request: ModelRequest, model: str, dialect: Dialect, stream: bool, prompt: Data) -> Data:
    params = dict(request.params)
    extra_body = params.pop("extra_body", None) or {}
    body = {"model": model, **prompt, **dialect.place(params)}
    if stream:
        if (body.get("n") or 1) > 1:
            raise ModelConfigurationError(f"n={body['n']} answers cannot be streamed: call chat, or leave n out")
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return {**body, **extra_body}


def _chat_body(request: ModelRequest, model: str, dialect: Dialect, stream: bool) -> Data:
    prompt: Data = {"messages": [_message(message, dialect) for message in request.messages]}
    if request.tools:
        strict = dialect.strict_tools and request.tool_choice not in (None, "auto", "none")
        prompt["tools"] = [{"type": "function", "function": plain_function(tool, strict)} for tool in request.tools]
        if request.tool_choice is not None:
            prompt["tool_choice"] = request.tool_choice
    if request.output_schema:
        schema = {"name": schema_name(request.output_schema), "schema": request.output_schema, "strict": True}
        prompt["response_format"] = {"type": "json_schema", "json_schema": schema}
    return _body(request, model, dialect, stream, prompt)


def _completions_body(request: ModelRequest, model: str, dialect: Dialect, stream: bool) -> Data:
    if request.tools or request.output_schema:
        raise ModelConfigurationError("a raw prompt takes neither tools nor output_schema: call chat without a meta_template")
    body = _body(request, model, dialect, stream, {"prompt": request.prompt})
    if "max_completion_tokens" in body:  # the name that only Chat Completions knows
        body["max_tokens"] = body.pop("max_completion_tokens")
    return body


def _message(message: Data, dialect: Dialect) -> Data:
    role = message["role"]
    message = {**message, "role": dialect.roles.get(role, role)}
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [_call_as_sent(call) for call in calls]
    return message


def _call_as_sent(call: Data) -> Data:
    arguments = call["function"]["arguments"]
    if isinstance(arguments, str):
        return call
    return {**call, "function": {**call["function"], "arguments": json.dumps(arguments, ensure_ascii=False)}}


def plain_function(tool: Mapping[str, Any], strict: bool) -> Data:
    """The function of a tool as servers take it: without lagent's ``examples``, and marked where arguments have to fit."""
    function = {key: value for key, value in tool.get("function", tool).items() if key != "examples"}
    return {**function, "strict": True} if strict else function


def schema_name(schema: Mapping[str, Any]) -> str:
    """A name for ``schema`` that servers take: letters, digits, ``_`` and ``-``, 64 characters at most."""
    title = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in str(schema.get("title") or ""))
    return title[:64] or "answer"


# Answers ---------------------------------------------------------------------------------------------------------


def _first_choice(data: Data) -> Data:
    if not data.get("choices"):
        raise EngineError(f"the server's answer holds no choice: {json.dumps(data)[:200]}", request_id=data.get("id"))
    choice: Data = data["choices"][0]
    return choice


def _read_chat(data: Data, dialect: Dialect) -> ModelResponse:
    first = _read_choice(_first_choice(data), dialect)
    first.usage, first.raw = _usage(data), data
    first.extra |= _extra(data)
    if others := data["choices"][1:]:
        first.extra["choices"] = [_read_choice(choice, dialect) for choice in others]
    return first


def _read_choice(choice: Data, dialect: Dialect) -> ModelResponse:
    message = choice.get("message") or {}
    calls = [_read_call(call) for call in message.get("tool_calls") or ()]
    extra = {"refusal": message["refusal"]} if message.get("refusal") else {}
    if logprobs := _logprobs(choice):
        extra["logprobs"] = logprobs
    return ModelResponse(
        content=message.get("content") or "",
        reasoning=_reasoning(message, dialect),
        tool_calls=calls,
        finish_reason=choice.get("finish_reason") or "stop",
        extra=extra,
    )


def _read_call(call: Data) -> ToolCall:
    function = call.get("function") or {}
    return ToolCall(function.get("name") or "", parse_arguments(function.get("arguments")), call.get("id") or _new_call_id())


def parse_arguments(arguments: Any) -> dict[str, Any] | str:
    """The arguments of a tool call as a dict, or the raw text where it is not a JSON object."""
    if isinstance(arguments, dict):
        return arguments
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else str(arguments)


def _new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def _read_chat_event(data: Data, dialect: Dialect) -> ModelChunk:
    choices = data.get("choices")
    choice = choices[0] if choices else {}
    delta = choice.get("delta") or {}
    pieces = [_read_piece(index, piece) for index, piece in enumerate(delta.get("tool_calls") or ())]
    extra = _extra(data)
    if logprobs := _logprobs(choice):
        extra["logprobs"] = logprobs
    if delta.get("refusal"):
        extra["refusal"] = delta["refusal"]
    return ModelChunk(
        content=delta.get("content") or "",
        reasoning=_reasoning(delta, dialect) or "",
        tool_calls=pieces,
        finish_reason=choice.get("finish_reason"),
        usage=_usage(data),
        extra=extra,
    )


def _read_piece(position: int, piece: Data) -> ToolCallDelta:
    function = piece.get("function") or {}
    name, arguments = function.get("name"), function.get("arguments") or ""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    index = piece.get("index")
    return ToolCallDelta(
        position if index is None else index, name, arguments, piece.get("id") or (_new_call_id() if name else None)
    )


def _read_completion(data: Data, dialect: Dialect) -> ModelResponse:
    choice = _first_choice(data)
    return ModelResponse(
        content=choice.get("text") or "",
        finish_reason=choice.get("finish_reason") or "stop",
        usage=_usage(data),
        extra=_extra(data),
        raw=data,
    )


def _read_completion_event(data: Data, dialect: Dialect) -> ModelChunk:
    choice = data["choices"][0] if data.get("choices") else {}
    return ModelChunk(
        content=choice.get("text") or "", finish_reason=choice.get("finish_reason"), usage=_usage(data), extra=_extra(data)
    )


def _reasoning(message: Data, dialect: Dialect) -> str | None:
    return next((message[field] for field in dialect.reasoning if message.get(field)), None)


def _logprobs(choice: Data) -> list[Data]:
    content: list[Data] = (choice.get("logprobs") or {}).get("content") or []
    return content


def _usage(data: Data) -> Usage | None:
    usage = data.get("usage")
    if not usage:
        return None
    return Usage(
        usage.get("prompt_tokens") or 0,
        usage.get("completion_tokens") or 0,
        (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        (usage.get("completion_tokens_details") or {}).get("reasoning_tokens"),
    )


_EXTRA = {"id": "request_id", "timings": "timings", "prompt_logprobs": "prompt_logprobs", "service_tier": "service_tier"}


def _extra(data: Data) -> Data:
    return {name: data[field] for field, name in _EXTRA.items() if data.get(field) is not None}


CHAT = Api("/chat/completions", _chat_body, _read_chat, _read_chat_event)
COMPLETIONS = Api("/completions", _completions_body, _read_completion, _read_completion_event)
