"""The agent that calls tools."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from lagent.actions import ActionExecutor, FinishAction
from lagent.agents import ToolAgent
from lagent.errors import ConfigurationError
from lagent.hooks import Hook
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage, AgentStatusCode, ModelResponse, ToolCall
from lagent_echo import EchoModel


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail() -> None:
    """Never works."""
    raise ZeroDivisionError("as always")


def picture() -> list[dict[str, Any]]:
    """Draw."""
    return [{"type": "text", "text": "here:"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]


def test_the_whole_flow(variant: Any) -> None:
    model = variant.model([[ToolCall("add", {"a": 37, "b": 5}, "c1")], "It is 42."])
    agent = variant.cls("ToolAgent")(model, [add], "Use tools.")
    assert variant.call(agent, "37+5?").content == "It is 42."
    assert [m.content for m in agent.memory.get_memory()] == ["37+5?", "It is 42."]
    question, call, result, answer = agent.agent.memory.get_memory()
    assert (question.content, answer.content) == ("37+5?", "It is 42.")
    assert call.formatted.tool_calls == [ToolCall("add", {"a": 37, "b": 5}, "c1")]
    assert (result.content, result.type, result.sender) == ("42", "tool", "ActionExecutor")
    assert result.extra_info == {"tool_call_id": "c1", "name": "add"}
    assert result.formatted.args == {"a": 37, "b": 5}
    assert model.requests[0].tools[0]["function"]["name"] == "add"
    assert model.requests[1].messages[: len(model.requests[0].messages)] == model.requests[0].messages


def test_calls_of_one_message_run_side_by_side_and_their_results_stand_in_order(variant: Any) -> None:
    barrier = threading.Barrier(3)

    def meet(name: str) -> str:
        """Wait for the others."""
        barrier.wait(10)
        return name

    model = variant.model([[ToolCall("meet", {"name": n}) for n in "abc"], "done"])
    agent = variant.cls("ToolAgent")(model, [meet])
    variant.call(agent, "go")
    assert [m.content for m in agent.agent.memory.get_memory()][2:5] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (ToolCall("fail"), "as always"),
        (ToolCall("nothing"), "There is no 'nothing'"),
        (ToolCall("add", {"a": 1}), "b"),
        (ToolCall("add", {"a": "x", "b": 1}), "a"),
        (ToolCall("add", "not json"), "not json"),
    ],
)
def test_what_goes_wrong_in_a_tool_goes_back_as_text(variant: Any, call: ToolCall, told: str) -> None:
    model = variant.model([[call], "sorry"])
    agent = variant.cls("ToolAgent")(model, [add, fail])
    assert variant.call(agent, "try").content == "sorry"
    result = agent.agent.memory.get_memory()[2]
    assert told in result.content
    assert result.formatted.state != ActionStatusCode.SUCCESS
    assert model.requests[1].messages[-1] == {
        "role": "tool",
        "tool_call_id": call.id or result.extra_info["tool_call_id"],
        "content": result.content,
    }


def test_the_last_turn_is_asked_without_tools(variant: Any) -> None:
    model = variant.model([[ToolCall("add", {"a": 1, "b": 1})], [ToolCall("add", {"a": 2, "b": 2})], "enough"])
    agent = variant.cls("ToolAgent")(model, [add], max_turn=3)
    assert variant.call(agent, "go").content == "enough"
    assert [request.tool_choice for request in model.requests] == [None, None, "none"]


def test_a_model_that_calls_even_then_is_not_obeyed(variant: Any) -> None:
    model = variant.model([[ToolCall("fail")]] * 2)
    agent = variant.cls("ToolAgent")(model, [fail], max_turn=2)
    assert variant.call(agent, "go").formatted.tool_calls[0].name == "fail"
    assert len(model.requests) == 2


def test_finish_condition_and_finish_action(variant: Any) -> None:
    calls = [[ToolCall("add", {"a": 1, "b": 1})], [ToolCall("FinishAction", {"response": "all done"})]]
    agent = variant.cls("ToolAgent")(variant.model(calls), [add, FinishAction()])
    assert variant.call(agent, "go").content == "all done"
    eager = variant.cls("ToolAgent")(variant.model(calls), [add], finish_condition=lambda message: True)
    assert variant.call(eager, "go").formatted.tool_calls[0].name == "add"


def test_images_come_back_as_content_parts() -> None:
    model = EchoModel([[ToolCall("picture")], "nice"])
    ToolAgent(model, [picture])("draw")
    content = model.requests[1].messages[-1]["content"]
    assert content[0] == {"type": "text", "text": "here:"}
    assert content[1]["type"] == "image_url"


def test_hooks_of_the_executor_shape_the_result(variant: Any) -> None:
    class Plain(Hook):
        def after_action(self, executor: Any, message: Any, session_id: Any) -> Any:
            return message.model_copy(update={"content": f"<{message.content.format_result()}>"})

    model = variant.model([[ToolCall("add", {"a": 1, "b": 2})], "ok"])
    agent = variant.cls("ToolAgent")(model, [add], action_hooks=[Plain()])
    variant.call(agent, "go")
    assert model.requests[1].messages[-1]["content"] == "<3>"
    assert agent.agent.memory.get_memory()[2].formatted is None


def test_an_executor_may_be_given_and_actions_of_either_colour(variant: Any) -> None:
    async def later(x: str) -> str:
        """Echo."""
        return x

    model = variant.model([[ToolCall("later", {"x": "a"})], "ok"])
    agent = variant.cls("ToolAgent")(model, ActionExecutor([later]))
    variant.call(agent, "go")
    assert model.requests[1].messages[-1]["content"] == "a"


def test_streams_show_each_step(variants: list[Any]) -> None:
    for variant in variants[2:]:
        agent = variant.cls("ToolAgent")(
            variant.model([["let me see", ToolCall("add", {"a": 1, "b": 2}, "c1")], "it is three"]), [add], name="t"
        )
        messages: list[AgentMessage] = variant.emitted(agent, "1+2?")
        start = next(m for m in messages if m.stream_state is AgentStatusCode.PLUGIN_START)
        end = next(m for m in messages if m.stream_state is AgentStatusCode.PLUGIN_RETURN)
        assert (start.content.name, start.content.parameters, start.receiver) == ("add", {"a": 1, "b": 2}, "ActionExecutor")
        assert (start.sender, start.type, start.extra_info) == ("t", "tool", {"tool_call_id": "c1", "name": "add"})
        assert (end.content, end.sender, isinstance(end.formatted, ActionReturn)) == ("3", "ActionExecutor", True)
        assert messages.index(start) < messages.index(end)
        assert "".join(m.increment for m in messages).replace(" ", "") == "letmeseeitisthree"
        assert messages[-1].content == "it is three"


def test_actions_get_the_session(variant: Any) -> None:
    def whose(session_id: str) -> str:
        """Tell whose call it is."""
        return f"that of {session_id}"

    model = variant.model([[ToolCall("whose")], "ok"])
    agent = variant.cls("ToolAgent")(model, [whose])
    variant.call(agent, "go", session_id="user-42")
    result = agent.agent.memory.get_memory("user-42")[2]
    assert (result.content, result.receiver) == ("that of user-42", agent.name)


def test_without_actions_it_just_answers(variant: Any) -> None:
    model = variant.model(ModelResponse("hi"))
    assert variant.call(variant.cls("ToolAgent")(model), "x").content == "hi"
    assert model.requests[0].tools is None


def test_arguments() -> None:
    with pytest.raises(ConfigurationError, match="max_turn must be at least 1, not 0"):
        ToolAgent(EchoModel(), [add], max_turn=0)
