"""What a model has to do that declares a capability, and one that does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lagent.errors import UnsupportedCapabilityError
from lagent.schema import ModelResponse
from lagent.testing.kit import items, value_of
from lagent.testing.model_kit import ModelKit, ask, whole

__all__ = ["CapabilityTests"]

_PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

_IMAGE: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "Which colour is this?"}, {"type": "image_url", "image_url": {"url": _PIXEL}}],
    }
]


class CapabilityTests(ModelKit):
    """The tests of :class:`lagent.testing.ModelTests` that ``capabilities`` decide about."""

    # Tools

    def test_tools(self, model: Any) -> None:
        self._needs(model, "tools")
        options: dict[str, Any] = {"tools": [self.tool], "tool_choice": "required"}
        self._check_tool_calls(self.chat(model, ask(self.tool_prompt), **options))

    def test_streamed_tools(self, model: Any) -> None:
        self._needs(model, "tools")
        options: dict[str, Any] = {"tools": [self.tool], "tool_choice": "required"}
        self._check_tool_calls(whole(self.stream(model, ask(self.tool_prompt), **options)))

    def test_tool_results(self, model: Any) -> None:
        self._needs(model, "tools")
        function = {"name": self.tool["function"]["name"], "arguments": '{"city": "Paris"}'}
        messages = [
            *ask(self.tool_prompt),
            {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny, 20 °C"},
        ]
        assert isinstance(self.chat(model, messages, tools=[self.tool]), ModelResponse)

    def test_tool_choice_none(self, model: Any) -> None:
        self._needs(model, "tools")
        assert self.chat(model, ask(self.tool_prompt), tools=[self.tool], tool_choice="none").tool_calls == []

    def _check_tool_calls(self, response: ModelResponse) -> None:
        function = self.tool["function"]
        assert response.tool_calls, "tool_choice='required' did not lead to a tool call"
        for call in response.tool_calls:
            assert call.name == function["name"]
            assert isinstance(call.arguments, dict), f"the arguments are not a JSON object: {call.arguments!r}"
            assert set(function["parameters"]["required"]) <= call.arguments.keys() <= function["parameters"]["properties"].keys()
            assert call.id, "a tool call has no id for its result to refer to"
        ids = [call.id for call in response.tool_calls]
        assert len(set(ids)) == len(ids), "tool calls share an id"
        assert response.finish_reason == "tool_calls"

    # Constrained output

    def test_output_schema(self, model: Any) -> None:
        self._needs(model, "json_schema")
        self._check_value(self.chat(model, ask(self.schema_prompt), output_schema=self.output_schema))

    def test_streamed_output_schema(self, model: Any) -> None:
        self._needs(model, "json_schema")
        self._check_value(whole(self.stream(model, ask(self.schema_prompt), output_schema=self.output_schema)))

    def _check_value(self, response: ModelResponse) -> None:
        value = json.loads(response.content)
        kinds: dict[str, Any] = {
            "string": str,
            "boolean": bool,
            "integer": int,
            "number": (int, float),
            "object": dict,
            "array": list,
        }
        assert isinstance(value, dict)
        assert set(self.output_schema["required"]) <= value.keys() <= self.output_schema["properties"].keys()
        for name, schema in self.output_schema["properties"].items():
            assert name not in value or isinstance(value[name], kinds[schema["type"]]), f"{name!r} is no {schema['type']}"

    def test_grammar(self, model: Any) -> None:
        self._needs(model, "grammar")
        assert self.chat(model, ask(self.prompt), grammar='root ::= "yes" | "no"').content in ("yes", "no")

    # Further capabilities

    def test_prefix_caching(self, model: Any) -> None:
        self._needs(model, "prefix_caching")
        first = [{"role": "system", "content": "Answer the question about numbers. " * 40}, *ask("What is 1 + 1?")]
        self.chat(model, first)
        second = [*first, {"role": "assistant", "content": "2"}, *ask("And 2 + 2?")]
        assert (self.chat(model, second).usage.cached_tokens or 0) > 0, "nothing was reused of a prompt that extends the last one"

    def test_raw_prompt(self, model: Any) -> None:
        self._needs(model, "raw_prompts")
        assert isinstance(value_of(model.generate, "One, two, three,", **self.sampling), ModelResponse)
        response = whole(items(model.stream_generate("One, two, three,", **self.sampling)))
        assert response.finish_reason in ("stop", "length")

    def test_logprobs(self, model: Any) -> None:
        self._needs(model, "logprobs")
        for response in (
            self.chat(model, ask(self.prompt), logprobs=True),
            whole(self.stream(model, ask(self.prompt), logprobs=True)),
        ):
            tokens = response.extra["logprobs"]
            assert tokens, "there are no log-probabilities, though they were asked for"
            assert all(isinstance(token["token"], str) and token["logprob"] <= 0 for token in tokens)

    def test_images(self, model: Any) -> None:
        self._needs(model, "images")
        assert self.chat(model, _IMAGE)

    @pytest.mark.parametrize("capability", ["tools", "json_schema", "grammar", "images", "raw_prompts"])
    def test_what_is_lacking_is_refused(self, model: Any, capability: str) -> None:
        if getattr(model.capabilities, capability):
            pytest.skip(f"the model's capabilities name {capability!r}")
        requests: dict[str, dict[str, Any]] = {
            "tools": {"tools": [self.tool]},
            "json_schema": {"output_schema": self.output_schema},
            "grammar": {"grammar": 'root ::= "yes" | "no"'},
        }
        asked = requests.get(capability, {})
        raw = capability == "raw_prompts"
        given: Any = {"raw_prompts": "text", "images": _IMAGE}.get(capability, ask(self.prompt))
        with pytest.raises(UnsupportedCapabilityError):
            value_of(model.generate if raw else model.chat, given, **asked)
        with pytest.raises(UnsupportedCapabilityError):
            list(items((model.stream_generate if raw else model.stream_chat)(given, **asked)))
