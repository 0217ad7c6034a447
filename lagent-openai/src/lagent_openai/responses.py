"""The Responses API: what a request's body holds and what the server's answer says.

Source of the format: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from lagent.errors import EngineError, ModelConfigurationError
from lagent.llms import ModelRequest
from lagent.schema import ModelChunk, ModelResponse, ToolCall, ToolCallDelta, Usage
from lagent_openai.chat import Api, parse_arguments, plain_function, schema_name
from lagent_openai.dialects import Dialect

__all__ = ["RESPONSES"]

Data = dict[str, Any]

_PLACES = {
    "max_new_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "response_format": None,
    "stop_words": None,
    "n": None,
    "seed": None,
    "logprobs": None,
    "logit_bias": None,
    "frequency_penalty": None,
    "presence_penalty": None,
    "modalities": None,
    "audio": None,
    "prediction": None,
    "web_search_options": None,
}
"""Where parameters of Chat Completions sit in this API; ``None`` where it has no such parameter."""


def _dialect(dialect: Dialect) -> Dialect:
    moved = {name: _PLACES.get(name, path) for name, path in dialect.parameters.items()}
    return attrs.evolve(dialect, parameters={name: path for name, path in moved.items() if path})


# Requests --------------------------------------------------------------------------------------------------------


def _body(request: ModelRequest, model: str, dialect: Dialect, stream: bool) -> Data:
    params = dict(request.params)
    extra_body = params.pop("extra_body", None) or {}
    body: Data = {"model": model, "input": [item for message in request.messages for item in _items(message)], "store": False}
    if params.pop("logprobs", None):
        body["include"] = ["message.output_text.logprobs"]
    if (params.pop("response_format", None) or {}).get("type") == "json_object":
        body["text"] = {"format": {"type": "json_object"}}
    body |= _dialect(dialect).place(params)
    if request.tools:
        body["tools"] = [{"type": "function", "strict": False, **plain_function(tool, False)} for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _tool_choice(request.tool_choice)
    if request.output_schema:
        schema = {"type": "json_schema", "name": schema_name(request.output_schema), "schema": request.output_schema}
        body.setdefault("text", {})["format"] = {**schema, "strict": True}
    if stream:
        body["stream"] = True
    return {**body, **extra_body}


def _tool_choice(choice: str | Data) -> str | Data:
    return choice if isinstance(choice, str) else {"type": "function", "name": choice["function"]["name"]}


def _items(message: Data) -> list[Data]:
    """The input items that stand for one message."""
    role, content = message["role"], message.get("content")
    if role == "tool":
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": _text(content)}]
    items: list[Data] = []
    if content:
        parts = content if isinstance(content, str) else [_part(part, role) for part in content]
        items.append({"role": role, "content": parts})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = function["arguments"]
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        items.append({"type": "function_call", "call_id": call.get("id"), "name": function["name"], "arguments": arguments})
    return items


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return "" if content is None else str(content)


def _part(part: Data, role: str) -> Data:
    """A content part of Chat Completions in this API's form.

    Raises:
        ModelConfigurationError: it has no counterpart.
    """
    kind = part.get("type")
    if kind == "text":
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part["text"]}
    if kind == "image_url":
        image = part["image_url"]
        image = {"url": image} if isinstance(image, str) else image
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}
    if kind == "file":
        return {"type": "input_file", **part["file"]}
    raise ModelConfigurationError(f"the Responses API takes no content part of type {kind!r}: use text, image_url or file")


# Answers ---------------------------------------------------------------------------------------------------------


def _read(data: Data, dialect: Dialect) -> ModelResponse:
    ended = _ending(data)
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    for item in data.get("output") or ():
        if item.get("type") == "message":
            content += [part.get("text") or part.get("refusal") or "" for part in item.get("content") or ()]
        elif item.get("type") == "reasoning":
            reasoning += [part["text"] for part in (item.get("content") or item.get("summary") or ()) if part.get("text")]
        elif item.get("type") == "function_call":
            calls.append(ToolCall(item["name"], parse_arguments(item.get("arguments")), item.get("call_id")))
    return ModelResponse(
        content="".join(content),
        reasoning="\n".join(reasoning) or None,
        tool_calls=calls,
        finish_reason=ended.finish_reason,
        usage=ended.usage,
        extra=ended.extra,
        raw=data,
    )


def _ending(data: Data) -> ModelChunk:
    """What the body of an answer says about its end.

    Raises:
        EngineError: the answer failed.
    """
    if data.get("status") == "failed" or data.get("error"):
        error = data.get("error") or {}
        raise EngineError(f"the server failed to answer: {error.get('message') or error or data}", request_id=data.get("id"))
    cause = (data.get("incomplete_details") or {}).get("reason")
    output = data.get("output") or ()
    if data.get("status") == "incomplete":
        finish_reason = "length" if cause == "max_output_tokens" else cause or "length"
    else:
        finish_reason = "tool_calls" if any(item.get("type") == "function_call" for item in output) else "stop"
    extra = {"request_id": data["id"]} if data.get("id") else {}
    parts = [part for item in output if item.get("type") == "message" for part in item.get("content") or ()]
    if logprobs := [entry for part in parts for entry in part.get("logprobs") or ()]:
        extra["logprobs"] = logprobs
    return ModelChunk(finish_reason=finish_reason, usage=_usage(data.get("usage")), extra=extra)


def _usage(usage: Data | None) -> Usage | None:
    if not usage:
        return None
    return Usage(
        usage.get("input_tokens") or 0,
        usage.get("output_tokens") or 0,
        (usage.get("input_tokens_details") or {}).get("cached_tokens"),
        (usage.get("output_tokens_details") or {}).get("reasoning_tokens"),
    )


def _read_event(data: Data, dialect: Dialect) -> ModelChunk:
    kind = data.get("type")
    if kind in ("response.output_text.delta", "response.refusal.delta"):
        return ModelChunk(content=data["delta"])
    if kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
        return ModelChunk(reasoning=data["delta"])
    if kind == "response.output_item.added" and data["item"].get("type") == "function_call":
        item = data["item"]
        piece = ToolCallDelta(data["output_index"], item["name"], item.get("arguments") or "", item.get("call_id"))
        return ModelChunk(tool_calls=[piece])
    if kind == "response.function_call_arguments.delta":
        return ModelChunk(tool_calls=[ToolCallDelta(data["output_index"], arguments=data["delta"])])
    if kind in ("response.completed", "response.incomplete", "response.failed"):
        return _ending(data["response"])
    if kind == "error":
        raise EngineError(f"the server failed to answer: {data.get('message') or data}")
    return ModelChunk()


RESPONSES = Api("/responses", _body, _read, _read_event)
