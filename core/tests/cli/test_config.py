"""Configuration files make agents; what is wrong in one is told with file, line and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lagent import registry
from lagent.agents import Agent, AsyncAgent
from lagent.cli.config import load_agent
from lagent.errors import ConfigurationError
from lagent.schema import AgentMessage

TOML = """\
[agent]
type = "tools"
system_prompt = "Be brief."
actions = ["calculator"]

[agent.llm]
type = "echo"
answers = ["done"]
"""
YAML = """\
agent:
  type: tools
  system_prompt: Be brief.
  actions: [calculator]
  llm:
    type: echo
    answers: [done]
"""
JSON = json.dumps(
    {
        "agent": {
            "type": "tools",
            "system_prompt": "Be brief.",
            "actions": ["calculator"],
            "llm": {"type": "echo", "answers": ["done"]},
        }
    },
    indent=2,
)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str, name: str = "agent.toml") -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


@pytest.mark.parametrize(("name", "text"), [("a.toml", TOML), ("a.yaml", YAML), ("a.yml", YAML), ("a.json", JSON)])
def test_every_format_makes_the_same_agent(write: Any, name: str, text: str) -> None:
    agent = load_agent(write(text, name))
    answers = list(agent("hi"))
    assert answers[-1].content == "done"
    (request,) = agent.agent.llm.requests
    assert request.messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert [tool["function"]["name"] for tool in request.tools] == ["Calculator"]


def test_an_agent_that_can_stream_does_and_keeps_its_name(write: Any) -> None:
    agent = load_agent(write('[agent]\ntype = "agent"\nllm = {type = "echo", answers = ["one two three"]}'))
    messages = list(agent("hi"))
    assert [message.increment for message in messages if message.increment] == ["one", " two", " three"]
    assert messages[-1].sender == "Agent"


def test_an_agent_with_a_forward_of_its_own_keeps_its_form(write: Any) -> None:
    class Own(Agent):
        def forward(self, *message: AgentMessage, **_: Any) -> str:
            return f"own: {message[0].content}"

    with registry.register("agents", "own", Own):
        assert load_agent(write('[agent]\ntype = "own"'))("hi").content == "own: hi"


async def test_an_asynchronous_agent_gets_the_asynchronous_model(write: Any) -> None:
    with registry.register("agents", "asynchronous", AsyncAgent):
        agent = load_agent(write('[agent]\ntype = "asynchronous"\nllm = {type = "echo", answers = ["done"]}'))
    assert [message.content async for message in agent("hi")][-1] == "done"


def test_a_memory_is_made_for_every_session(write: Any) -> None:
    agent = load_agent(write('[agent]\ntype = "agent"\nmemory = {type = "memory", recent_n = 1}\nllm = "echo"'))
    for session in ("a", "b"):
        list(agent(f"in {session}", session_id=session))
    assert [m.content for m in agent.memory.get("a").memory] == ["in a", "in a"]
    assert agent.memory.get("b").recent_n == 1


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ('[agent]\ntype = "tools"\nllm = "eco"', "line 3, agent.llm", "did you mean 'echo'"),
        ('[agent]\ntype = "tolls"', "line 2, agent.type", "did you mean 'tools'"),
        ('[agent]\ntype = "tools"\n[agent.llm]\ntype = "eco"', "line 4, agent.llm.type", "did you mean 'echo'"),
        ('[agent]\ntype = "tools"\nllm = "echo"\nmax_trun = 3', "line 4, agent.max_trun", "no argument 'max_trun'"),
        ('[agent]\ntype = "tools"\nllm = "echo"\nactions = ["calculator", "abacus"]', "line 4, agent.actions[1]", "'abacus'"),
        ('[agent]\ntype = "agent"\nllm = {type = "echo"}\naggregator = {type = "trim", tokens = 1}', "line 4", "'tokens'"),
        ('[agent]\ntype = "agent"\nmemory = {type = "memory", recnt_n = 1}', "line 3, agent.memory.recnt_n", "'recent_n'"),
        ('[agent]\ntype = "agent"\nllm = {type = "os.getcwd"}', "line 3, agent.llm.type", "dotted path"),
        ('[agent]\ntype = "agent"\nllm = 3', "line 3, agent.llm", "by name or as a table"),
        ('[agent]\ntype = "agent"\nllm = {type = "echo", recording = "none.jsonl"}', "line 3, agent.llm", "none.jsonl"),
        ("[agent]\nname = 'x'", "line 1, agent", "one of: "),
        ('[agent]\ntype = "agent"\n[agnet]\n', "line 3, agnet", "only 'agent'"),
        ("[agent]\ntype = \n", "cannot be read", "line 2"),
        ("x = 1", "no table", "[agent]"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(write: Any, text: str, place: str, problem: str) -> None:
    file = write(text)
    with pytest.raises(ConfigurationError) as error:
        load_agent(file)
    message = str(error.value)
    assert message.startswith(str(file))
    assert place in message
    assert problem in message


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", '{"agent": {"type": "agent",}}', "line 1 column"),
        ("a.json", '{\n"agent": {\n"type": "agnt"}}', "line 3, agent.type"),
        ("a.yaml", "agent:\n  type: [", "at line 2"),
        ("a.yaml", "agent:\n  type: agent\n  actions:\n  - x\n  llm: eco", "line 5, agent.llm"),
        ("a.ini", "[agent]", "has to end in .toml"),
        ("a.toml", "[agent]\ntype = 'agent'\nname = '\ud800'", "cannot be read"),
    ],
)
def test_the_other_formats_tell_it_as_well(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigurationError, match=problem):
        load_agent(tmp_path / name)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no configuration file"):
        load_agent(tmp_path / "none.toml")
