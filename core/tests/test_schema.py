"""Messages and model output as data."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from enum import Enum
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.errors import StateError
from lagent.schema import (
    ActionReturn,
    AgentMessage,
    AgentStatusCode,
    ModelChunk,
    ModelResponse,
    ModelStatusCode,
    ParsedResponse,
    ParseStatus,
    ResponseBuilder,
    ToolCall,
    ToolCallDelta,
    Usage,
    to_data,
    tool_calls_of,
)

PRINTED = (
    "content='急' sender='Agent' formatted=None extra_info=None type=None receiver=None stream_state=<AgentStatusCode.END: 0>"
)


class TestAgentMessage:
    def test_prints_as_in_lagent(self) -> None:
        message = AgentMessage(sender="Agent", content="急")
        assert str(message) == PRINTED
        assert repr(message) == f"AgentMessage({PRINTED.replace(' ', ', ').replace(':, 0', ': 0')})"

    def test_dumps_as_in_lagent(self) -> None:
        message = AgentMessage("急", sender="Agent", increment="急")
        assert message.model_dump() == {
            "content": "急",
            "sender": "Agent",
            "formatted": None,
            "extra_info": None,
            "type": None,
            "receiver": None,
            "stream_state": AgentStatusCode.END,
        }
        assert '"content": "急",\n    "sender"' in message.model_dump_json(indent=4)
        assert message.model_dump_json().startswith('{"content":"急","sender"')

    def test_validate_gives_the_message_itself_or_one_of_the_data(self) -> None:
        message = AgentMessage("x", stream_state=5)  # type: ignore[arg-type]
        assert AgentMessage.model_validate(message) is message
        assert AgentMessage.model_validate(json.loads(message.model_dump_json())) == message
        assert message.stream_state is AgentStatusCode.PLUGIN_RETURN
        assert AgentMessage("x", stream_state=ModelStatusCode.END).stream_state is ModelStatusCode.END

    @pytest.mark.parametrize("wrong", [3, {}, {"content": 1, "x": 2}, {"content": 1, "sender": None}, {"content": 1, "type": 3}])
    def test_validate_refuses_what_is_none(self, wrong: Any) -> None:
        with pytest.raises(StateError):
            AgentMessage.model_validate(wrong)

    def test_copies(self) -> None:
        message = AgentMessage([{"a": [1]}], extra_info={"b": {2}}, increment="i")
        shallow, deep = message.model_copy(), message.copy(deep=True)
        message.content[0]["a"].append(2)
        message.extra_info["b"].add(3)
        assert shallow.content is message.content
        assert deep.content == [{"a": [1]}]
        assert deep.extra_info == {"b": {2}}
        assert deep.increment == "i"
        assert message.copy(update={"sender": "x"}).sender == "x"
        assert copy.deepcopy(message) == message

    def test_content_of_a_response_is_its_text(self) -> None:
        message = AgentMessage(ModelResponse("x", usage=Usage(1, 1)))
        assert type(message.content) is str
        message.content = ModelResponse("y")
        assert type(message.model_copy().content) is str


@attrs.define
class Attrs:
    a: Any


@dataclasses.dataclass
class Data:
    d: Any


class Pydantic:
    def model_dump(self) -> dict[str, Any]:
        return {"p": Attrs(1)}


class Colour(Enum):
    RED = "red"


def test_to_data() -> None:
    value = {
        1: (Attrs(Data({Colour.RED})), Pydantic()),
        Colour.RED: [ParseStatus.OK, AgentStatusCode.END],
        "x": ModelResponse("m"),
    }
    assert to_data(value) == {"1": [{"a": {"d": ["red"]}}, {"p": {"a": 1}}], "red": ["ok", 0], "x": "m"}
    assert type(to_data(ModelResponse("m"))) is str
    assert to_data(object).startswith("<class")
    assert to_data(Data) == str(Data)
    json.dumps(to_data(value))


class TestModelResponse:
    def test_is_its_text(self) -> None:
        response = ModelResponse("abc", reasoning="r", tool_calls=[ToolCall("t")], usage=Usage(3, 4))
        assert response == "abc" == str(response)
        assert type(str(response)) is str
        assert response.upper() == "ABC"
        assert "b" in response
        assert {response: 1}["abc"] == 1
        assert json.dumps(response) == '"abc"'
        assert response.usage is not None
        assert response.usage.total_tokens == 7

    def test_survives_pickling_and_copying(self) -> None:
        response = ModelResponse("abc", tool_calls=[ToolCall("t", {"a": 1})], extra={"k": 1})
        for other in (pickle.loads(pickle.dumps(response)), copy.deepcopy(response)):
            assert (other, other.tool_calls, other.extra) == ("abc", response.tool_calls, {"k": 1})


class TestResponseBuilder:
    @given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3))))
    def test_puts_text_together_and_tells_chunks_the_text_so_far(self, pieces: list[tuple[str, str]]) -> None:
        builder, chunks = ResponseBuilder(), []
        for content, reasoning in pieces:
            chunks.append(builder.add(ModelChunk(content, reasoning)))
        so_far = ""
        for chunk, (content, _) in zip(chunks, pieces, strict=True):
            so_far += content
            assert chunk.text == so_far
            assert list(chunk) == [ModelStatusCode.STREAM_ING, so_far, None]
        assert builder.response() == so_far
        assert builder.response().reasoning == ("".join(r for _, r in pieces) or None)
        assert not builder.finished

    def test_puts_tool_calls_together(self) -> None:
        builder = ResponseBuilder()
        for deltas in (
            [ToolCallDelta(1, "b", '{"x"', "id1")],
            [ToolCallDelta(0, "a", "", "id0"), ToolCallDelta(1, arguments=": 1}")],
            [ToolCallDelta(2, "c", "not json"), ToolCallDelta(3, None, "[1]")],
        ):
            builder.add(ModelChunk(tool_calls=deltas))
        builder.add(ModelChunk(finish_reason="tool_calls", usage=Usage(1, 2), extra={"k": 1}))
        response = builder.response()
        assert response.tool_calls == [
            ToolCall("a", {}, "id0"),
            ToolCall("b", {"x": 1}, "id1"),
            ToolCall("c", "not json"),
            ToolCall("", "[1]"),
        ]
        assert (response.finish_reason, response.usage, response.extra) == ("tool_calls", Usage(1, 2), {"k": 1})
        assert builder.finished

    def test_a_last_chunk_has_the_status_end(self) -> None:
        status, text, _ = ResponseBuilder().add(ModelChunk("x", finish_reason="stop"))
        assert (status, text) == (ModelStatusCode.END, "x")


def test_tool_calls_of() -> None:
    calls = [ToolCall("t", {"a": 1}, "id")]
    message = AgentMessage("", formatted=ParsedResponse(tool_calls=calls))
    assert tool_calls_of(message) is calls
    assert tool_calls_of(AgentMessage.model_validate(message.model_dump())) == calls
    for formatted in (None, "x", {"tool_calls": None}, {"other": 1}):
        assert tool_calls_of(AgentMessage("", formatted=formatted)) == []


def test_action_return_as_text() -> None:
    parts = [{"type": "text", "content": "a"}, {"type": "image", "content": "b.png"}]
    assert ActionReturn(result=parts).format_result() == "a\n[image](b.png)"
    assert ActionReturn().format_result() == ""
