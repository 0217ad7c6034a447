"""ReAct and ReWOO, in all four variants, and the hook that finds the call of an action."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lagent.actions import ActionExecutor
from lagent.agents import AsyncReAct, AsyncReWOO, ReAct, ReWOO
from lagent.errors import ActionArgumentsError
from lagent.prompts import PromptTemplate
from lagent.schema import AgentMessage, FunctionCall, ParsedResponse, ToolCall
from lagent_actions.agents import (
    ActionPreprocessor,
    AsyncStreamingReAct,
    AsyncStreamingReWOO,
    StreamingReAct,
    StreamingReWOO,
)
from lagent_echo import AsyncEchoModel, EchoModel


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


def final(agent: Any, question: str, session_id: Any = 0) -> AgentMessage:
    """The answer of an agent of whatever variant."""

    async def last(stream: Any) -> Any:
        return [message async for message in stream][-1]

    answer = agent(question, session_id=session_id)
    if hasattr(answer, "__anext__"):
        return asyncio.run(last(answer))  # type: ignore[no-any-return]
    if hasattr(answer, "__await__"):
        return asyncio.run(_settle(answer))
    return list(answer)[-1] if hasattr(answer, "__next__") else answer  # type: ignore[no-any-return]


async def _settle(awaitable: Any) -> Any:
    return await awaitable


def model(agent: Any, answers: list[Any]) -> Any:
    return (AsyncEchoModel if agent.asynchronous else EchoModel)(answers)


REACT = [ReAct, AsyncReAct, StreamingReAct, AsyncStreamingReAct]
REWOO = [ReWOO, AsyncReWOO, StreamingReWOO, AsyncStreamingReWOO]


@pytest.mark.parametrize("cls", REACT)
def test_react_acts_until_it_concludes(cls: Any) -> None:
    llm = model(
        cls,
        [
            json.dumps({"thought_process": "add", "action": {"name": "add", "parameters": {"a": 2, "b": 3}}}),
            "no JSON at all",
            json.dumps({"thought_process": "done", "conclusion": "It is 5."}),
        ],
    )
    agent = cls(llm, [add])
    answer = final(agent, "2 + 3?")
    assert answer.formatted["conclusion"] == "It is 5."
    said = [message.content for message in agent.select_agent.memory.get_memory(0)]
    assert said[0] == "2 + 3?"
    assert said[2] == "5"
    assert "JSON" in said[4]  # the model was told what was wrong
    system = llm.requests[0].messages[0]["content"]
    assert '"name": "add"' in system
    assert "conclusion" in system
    assert [message.content for message in agent.memory.get_memory(0)] == ["2 + 3?", answer.content]


def test_react_with_the_template_and_parser_of_a_user() -> None:
    from lagent.prompts.parsers import JSONParser

    llm = EchoModel(['{"name": "add", "parameters": {"a": 1, "b": 1}}', '{"conclusion": "2"}'])
    agent = ReAct(
        llm,
        actions=[add],
        template=PromptTemplate("Tools: {action_info}\n{output_format}"),
        output_format=JSONParser("Write {call} or {end}", call=dict[str, Any], end=dict[str, Any]),
        max_turn=2,
    )
    assert agent("?").formatted["conclusion"] == "2"
    assert llm.requests[0].messages[0]["content"].startswith("Tools: [")


def test_react_gives_up_after_max_turn() -> None:
    call = json.dumps({"thought_process": "", "action": {"name": "add", "parameters": {"a": 2, "b": 3}}})
    assert ReAct(EchoModel([call, call]), [add], max_turn=2)("?").content == "5"


@pytest.mark.parametrize("cls", REWOO)
def test_rewoo_plans_works_and_solves(cls: Any) -> None:
    plan = """Plan: add the first two
#E1 = add[{"a": 1, "b": 2}]
Plan: add the third
#E2 = add[{"a": "#E1", "b": 4}]
#E3 = subtract[1]
"""
    llm = model(cls, [plan, "It is 7."])
    agent = cls(llm, [add])
    answer = final(agent, "1 + 2 + 4?")
    assert (answer.content, answer.sender) == ("It is 7.", cls.__name__)
    asked = llm.requests[1].messages[-1]["content"]
    assert "Task: 1 + 2 + 4?" in asked
    assert "Plan: add the third" in asked
    assert "Evidence: 3\n" in asked
    assert "Evidence: 7\n" in asked
    assert "Evidence: There is no such action" in asked
    assert len(llm.requests) == 2


def test_rewoo_asks_again_for_a_plan_that_it_can_read() -> None:
    llm = EchoModel(["I would add them.", '#E1 = add[{"a": 1, "b": 2}]', "3"])
    assert ReWOO(llm, [add])("1 + 2?").content == "3"
    assert "no step of the form" in llm.requests[1].messages[-1]["content"]


@pytest.mark.parametrize(
    "formatted",
    [
        FunctionCall("add", {"a": 1, "b": 2}),
        {"name": "add", "parameters": {"a": 1, "b": 2}},
        {"thought": "", "action": {"name": "add", "parameters": {"a": 1, "b": 2}}},
        ParsedResponse(tool_calls=[ToolCall("add", {"a": 1, "b": 2})]),
        ParsedResponse(value={"action": {"name": "add", "parameters": {"a": 1, "b": 2}}}),
    ],
)
def test_the_call_is_found_in_what_parsers_give(formatted: Any) -> None:
    executor = ActionExecutor([add], hooks=[ActionPreprocessor()])
    message = AgentMessage("text", formatted=formatted)
    assert executor(message).content == "3"
    assert message.content == "text"


def test_a_message_without_a_call_is_an_error() -> None:
    with pytest.raises(Exception, match="names no action") as raised:
        ActionExecutor([add], hooks=[ActionPreprocessor()])(AgentMessage("text", formatted={"action": "x"}))
    assert isinstance(raised.value.__cause__, ActionArgumentsError)


def test_errors_of_actions_become_text() -> None:
    executor = ActionExecutor([add], hooks=[ActionPreprocessor()])
    content = executor(AgentMessage("", formatted=FunctionCall("add", {"a": 1}))).content
    assert isinstance(content, str)
    assert "b" in content
