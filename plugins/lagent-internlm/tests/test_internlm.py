"""Agents for InternLM: the prompts that they make, the tools that they run, and the math example on a real interpreter."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from lagent.actions import ActionExecutor, tool_api
from lagent.actions.base_action import BaseAction
from lagent.agents import Agent
from lagent.agents.stream import get_plugin_prompt
from lagent.errors import ConfigurationError
from lagent.hooks import InternLMActionProcessor
from lagent.memory import Memory
from lagent.prompts.parsers import ToolParser, ToolStatusCode
from lagent.schema import ActionReturn, AgentMessage, AgentStatusCode
from lagent_actions.code import IPythonInterpreter
from lagent_echo import AsyncEchoModel, EchoModel
from lagent_internlm import (
    INTERNLM2_META,
    AgentForInternLM,
    AsyncAgentForInternLM,
    AsyncMathCoder,
    AsyncStreamingAgentForInternLM,
    AsyncStreamingMathCoder,
    InternLMToolAggregator,
    MathCoder,
    StreamingAgentForInternLM,
    StreamingMathCoder,
)

PLUGIN = "Let me look.<|action_start|><|plugin|>\n{}<|action_end|>\n"
CODE = "Let me compute.<|action_start|><|interpreter|>\n{}<|action_end|>\n"


class Weather(BaseAction):
    """Knows the weather."""

    @tool_api
    def forecast(self, city: str) -> str:
        """The weather of tomorrow.

        Args:
            city: where
        """
        return f"sunny in {city}"

    @tool_api
    def warnings(self) -> str:
        """Warnings in force."""
        return "none"


class Code(BaseAction):
    """Pretends to run code."""

    def run(self, command: str) -> str:
        return f"ran {command.strip()}"


async def _collect(given: Any) -> list[AgentMessage]:
    if hasattr(given, "__anext__"):
        return [message async for message in given]
    return [await given]


def messages_of(answer: Any) -> list[AgentMessage]:
    """All messages that an agent of whatever variant gives."""
    if hasattr(answer, "__anext__") or hasattr(answer, "__await__"):
        return asyncio.run(_collect(answer))
    return list(answer) if hasattr(answer, "__next__") else [answer]


def model(cls: Any, answers: Any) -> Any:
    return (AsyncEchoModel if cls.asynchronous else EchoModel)(answers)


AGENTS = [AgentForInternLM, AsyncAgentForInternLM, StreamingAgentForInternLM, AsyncStreamingAgentForInternLM]


@pytest.mark.parametrize("cls", AGENTS)
def test_plugins_and_code_are_run_until_the_answer(cls: Any) -> None:
    call = json.dumps({"name": "Weather.forecast", "parameters": {"city": "Oslo"}})
    llm = model(cls, [PLUGIN.format(call), PLUGIN.format("{not JSON"), CODE.format("print(1)"), "It is sunny."])
    agent = cls(llm, plugins=[Weather()], interpreter=Code(), max_turn=5)
    given = messages_of(agent("Weather?", session_id=7))
    assert given[-1].content == "It is sunny."
    assert given[-1].formatted["status"] == ToolStatusCode.NO_TOOL
    if cls.streaming:
        states = [message.stream_state for message in given]
        assert AgentStatusCode.PLUGIN_RETURN in states
        assert AgentStatusCode.CODE_RETURN in states
    prompt = llm.requests[-1].messages
    assert [(message["role"], message.get("name")) for message in prompt] == [
        ("system", None),
        ("system", "plugin"),
        ("system", "interpreter"),
        ("user", None),
        ("assistant", None),
        ("environment", "plugin"),
        ("environment", "plugin"),
        ("assistant", None),
        ("environment", "interpreter"),
    ]
    assert '"Weather.forecast"' in prompt[1]["content"]
    assert prompt[4]["content"] == PLUGIN.format(call)
    assert prompt[5]["content"] == "sunny in Oslo"
    assert "JSON" in prompt[6]["content"]  # the call that could not be read is left out, what was wrong stays
    assert prompt[8]["content"] == "ran print(1)"
    steps = agent.get_steps(7)
    assert [step["role"] for step in steps] == [*("thought", "tool", "environment") * 3, "thought"]
    assert steps[1] == {"role": "tool", "content": json.loads(call), "name": "plugin"}
    assert steps[-2] == {"role": "environment", "content": "ran print(1)", "name": "interpreter"}


def test_the_prompt_grows_and_never_changes() -> None:
    llm = EchoModel([CODE.format("1"), "one", CODE.format("2"), "two"])
    agent = AgentForInternLM(llm, interpreter=Code())
    agent("first")
    agent("second")
    prompts = [request.messages for request in llm.requests]
    for before, after in itertools.pairwise(prompts):
        assert after[: len(before)] == before


def test_the_prompt_renders_as_internlm2_reads_it() -> None:
    from lagent.llms.meta_template import LMTemplateParser

    llm = EchoModel([CODE.format("1"), "one"])
    AgentForInternLM(llm, interpreter=Code(), template="Be kind.")("first")
    text = LMTemplateParser(INTERNLM2_META)(llm.requests[-1].messages)
    assert text.startswith("<|im_start|>system\nBe kind.")
    assert "<|im_start|>system name=<|interpreter|>\n" in text
    assert text.endswith(
        f"<|im_start|>assistant\n{CODE.format('1')}<|im_end|>\n<|im_start|>environment name=<|interpreter|>\nran 1<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_max_turn_ends_it_and_a_missing_tool_is_told() -> None:
    agent = AgentForInternLM(EchoModel([CODE.format("1")] * 2), interpreter=Code(), max_turn=2)
    assert agent("?").content == "ran 1"
    with pytest.raises(ConfigurationError, match="called for the tool 'plugin'"):
        AgentForInternLM(
            EchoModel([PLUGIN.format("{}")]),
            interpreter=Code(),
            output_format={"type": "plugin"},
            finish_condition=lambda m: False,
        )("?")
    with pytest.warns(UserWarning, match="neither plugins nor an interpreter"):
        AgentForInternLM(EchoModel())


def test_states_go_to_another_agent() -> None:
    agent = AgentForInternLM(EchoModel([CODE.format("1"), "one"]), interpreter=Code())
    agent("first")
    other = AgentForInternLM(EchoModel(["two"]), interpreter=Code())
    other.load_state_dict(json.loads(json.dumps(agent.state_dict())))
    other("second")
    assert [message["role"] for message in other.agent.llm.requests[0].messages][-4:] == [
        "assistant",
        "environment",
        "assistant",
        "user",
    ]
    assert other.get_steps()[1] == {"role": "tool", "content": "1", "name": "interpreter"}


def test_examples_are_written_as_the_model_would() -> None:
    shot = [
        {"role": "user", "content": "1 + 1?"},
        {"role": "thought", "content": "Compute."},
        {"role": "tool", "content": "1 + 1", "name": "code"},
        {"role": "environment", "content": "2", "name": "code"},
        {"role": "thought", "content": "It is 2."},
    ]
    aggregator = InternLMToolAggregator(environment_begin="<", environment_end=">", few_shot=[shot])
    parser = ToolParser("code", begin="[", end="]")
    memory = Memory()
    memory.add(AgentMessage("2 + 2?"))
    memory.add(AgentMessage("ok", sender="Tool"))
    messages = aggregator.aggregate(memory, "Agent", parser, "System.")
    assert messages == [
        {"role": "system", "content": "System."},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "Compute.[1 + 1]"},
        {"role": "environment", "content": "<2>", "name": "code"},
        {"role": "assistant", "content": "It is 2."},
        {"role": "user", "content": "2 + 2?"},
        {"role": "environment", "content": "<ok>"},
    ]
    with pytest.raises(ConfigurationError, match="unknown role 'robot'"):
        InternLMToolAggregator(few_shot=[[{"role": "robot", "content": ""}]]).aggregate(memory, "Agent", parser)


def test_code_goes_to_the_first_action() -> None:
    executor = ActionExecutor([Code(), Weather()], hooks=[InternLMActionProcessor()])
    formatted = {"tool_type": "interpreter", "thought": "", "action": "1", "status": 1}
    assert executor(AgentMessage("", formatted=formatted)).content == "ran 1"
    formatted["action"] = {"name": "Weather.warnings", "parameters": {}}
    assert executor(AgentMessage("", formatted=formatted)).content == "none"
    with pytest.raises(Exception, match="needs a tool parser's result"):
        executor(AgentMessage("no tool"))


def test_the_prompt_of_plugins() -> None:
    described = json.loads(get_plugin_prompt([Weather(), Code()], "{tool_name}: {description}"))
    assert [each["name"] for each in described] == ["Weather.forecast", "Weather.warnings", "Code"]
    assert described[0]["description"] == "Weather: The weather of tomorrow."
    assert json.loads(get_plugin_prompt("calculator"))[0]["name"] == "Calculator"


MATH = [MathCoder, AsyncMathCoder, StreamingMathCoder, AsyncStreamingMathCoder]


def solve(messages: list[dict[str, Any]]) -> str:
    """A model that computes what it was asked and answers with what the code gave."""
    question = next(m["content"] for m in messages if m["role"] == "user")
    results = [m["content"] for m in messages if m["role"] == "environment"]
    if not results:
        return CODE.format(f"x = {question}\nx")
    if len(results) == 1:
        return CODE.format("import math\nprint(math.factorial(x))")
    return f"\\boxed{{{results[-1]}}}"


@pytest.mark.parametrize("cls", MATH)
def test_math_on_a_real_interpreter_in_two_sessions(cls: Any) -> None:
    coder = cls(model(cls, solve), interpreter=IPythonInterpreter(timeout=60))

    async def both() -> list[Any]:
        async def one(question: str, session: str) -> Any:
            answer = coder(question, session_id=session)
            if hasattr(answer, "__await__") or hasattr(answer, "__anext__"):
                return (await _collect(answer))[-1].content
            return (await asyncio.to_thread(messages_of, answer))[-1].content

        return await asyncio.gather(one("3", "a"), one("5", "b"))

    assert asyncio.run(both()) == ["\\boxed{6}", "\\boxed{120}"]
    for session in ("a", "b"):
        coder.close_session(session) if not cls.asynchronous else asyncio.run(coder.aclose_session(session))
    assert not len(next(iter(coder.interpreter_executor.actions.values()))._sessions)


def test_the_interpreter_of_a_math_coder_by_default() -> None:
    coder = MathCoder(EchoModel(solve))
    assert coder("2 + 2").content == "\\boxed{24}"
    assert coder.get_steps()[2] == {"role": "environment", "content": "4", "name": "interpreter"}
    assert "MathCoder" in repr(coder)
    coder.close_session(0)


async def test_an_asynchronous_math_coder_closes_its_kernel_with_the_answer() -> None:
    coder = AsyncMathCoder(AsyncEchoModel(solve))
    action = next(iter(coder.interpreter_executor.actions.values()))
    assert action.name == "AsyncIPythonInterpreter"
    assert (await coder("4", session_id=1)).content == "\\boxed{24}"
    assert not len(action._sessions)


def test_an_action_return_is_shown_as_text() -> None:
    memory = Memory()
    memory.add(AgentMessage(ActionReturn(result=[{"type": "text", "content": "5"}]), sender="ActionExecutor"))
    (message,) = InternLMToolAggregator().aggregate(memory, Agent.__name__)
    assert message == {"role": "environment", "content": "5"}
