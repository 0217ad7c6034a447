"""Saving and loading what agents remember, across versions, all or nothing."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.agents import Agent, AgentList, Sequential
from lagent.agents.state import STATE_VERSION
from lagent.errors import StateError
from lagent.memory import Memory
from lagent.schema import AgentMessage, ParsedResponse, ToolCall
from lagent_echo import EchoModel

# Written by lagent 0.5.0rc3 itself: state_dict() of a coder with an agent below it and a list of two.
OLD_STATE = Path(__file__).parent / "data" / "lagent-0.5.0rc3-state.json"


class Coder(Agent):
    def __init__(self) -> None:
        super().__init__(EchoModel())
        self.agent = Agent(EchoModel())
        self.critics = AgentList([Agent(EchoModel(), name="first"), Agent(EchoModel(), name="second")])


def test_state_is_json_under_key_paths(variant: Any) -> None:
    chain = variant.cls("Sequential")(variant.cls("Agent")(variant.model(), name="a"))
    variant.call(chain, "x", session_id="s")
    state = chain.state_dict("s")
    assert list(state) == ["version", "memory", "0.memory"]
    assert json.loads(json.dumps(state)) == state
    assert chain.state_dict("other") == {"version": STATE_VERSION, "memory": [], "0.memory": []}
    fresh = variant.cls("Sequential")(variant.cls("Agent")(variant.model(), name="a"))
    found = fresh.load_state_dict(state, "t")
    assert (found.missing_keys, found.unexpected_keys) == ([], [])
    assert fresh.state_dict("t") == state
    assert fresh.memory.sessions() == ["t"]


def test_structures_survive_as_data() -> None:
    agent = Agent(EchoModel([ToolCall("add", {"a": [1, None, "x"]}, "c1")]))
    agent("x")
    state = json.loads(json.dumps(agent.state_dict()))
    assert state["memory"][1]["formatted"]["tool_calls"] == [{"name": "add", "arguments": {"a": [1, None, "x"]}, "id": "c1"}]
    other = Agent(EchoModel())
    other.load_state_dict(state)
    other("go on")
    assert other.llm.requests[0].messages[1]["tool_calls"][0]["function"]["name"] == "add"
    assert other.llm.requests[0].messages[2]["role"] == "tool"


def test_a_state_of_lagent_0_5_loads() -> None:
    coder = Coder()
    coder.load_state_dict(json.loads(OLD_STATE.read_text(encoding="utf-8")), "user-1")
    first, *_, last = coder.memory.get_memory("user-1")
    assert first == AgentMessage("6 乘 7 是多少?", extra_info={"topic": "arithmetic"})
    assert last.content == "It is 42."
    turns = coder.agent.memory.get_memory("user-1")
    assert [m.sender for m in turns] == ["user", "Agent", "ActionExecutor", "Agent"]
    assert turns[1].formatted["action"] == "print(6*7)"
    assert [agent.memory.get_memory("user-1")[-1].content for agent in coder.critics] == ["fine", "good"]
    assert coder.state_dict("user-1")["version"] == STATE_VERSION


def test_ten_thousand_messages() -> None:
    agent = Agent(EchoModel())
    agent.memory.add([AgentMessage(f"message {i}", sender="user" if i % 2 else "Agent") for i in range(10_000)])
    text = json.dumps(agent.state_dict())
    other = Agent(EchoModel())
    other.load_state_dict(json.loads(text))
    assert other.state_dict() == agent.state_dict()


def good() -> dict[str, Any]:
    coder = Coder()
    for _, agent in coder.named_agents():
        if agent.memory is not None:
            agent.memory.add(["a", AgentMessage("b", sender="x")])
    return coder.state_dict()


def damage(state: dict[str, Any], kind: str) -> Any:
    if kind == "newer":
        state["version"] = STATE_VERSION + 1
    elif kind == "no number":
        state["version"] = "one"
    elif kind == "negative":
        state["version"] = -1
    elif kind == "truncated":
        del state["critics.1.memory"]
    elif kind == "extra":
        state["stranger.memory"] = []
    elif kind == "odd key":
        state["critics.1.memories"] = []
    elif kind == "not a list":
        state["critics.1.memory"] = "gone"
    elif kind == "no message":
        state["critics.1.memory"][1] = ["content", "b"]
    elif kind == "no content":
        del state["critics.1.memory"][1]["content"]
    elif kind == "wrong field":
        state["critics.1.memory"][1]["sender"] = 5
    elif kind == "unknown field":
        state["critics.1.memory"][1]["role"] = "user"
    elif kind == "no mapping":
        return [state]
    return state


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("newer", "upgrade lagent-core"),
        ("no number", "it is damaged"),
        ("negative", "it is damaged"),
        ("truncated", "missing keys: critics.1.memory"),
        ("extra", "unexpected keys: stranger.memory"),
        ("odd key", "'critics.1.memories'"),
        ("not a list", "must be a list of messages, not str"),
        ("no message", "message 1: a message must be a mapping, not list"),
        ("no content", "message 1: a message needs a 'content'"),
        ("wrong field", "'sender' of a message must be a string"),
        ("unknown field", "a message has no field role"),
        ("no mapping", "not list"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(kind: str, message: str) -> None:
    coder = Coder()
    for _, agent in coder.named_agents():
        if agent.memory is not None:
            agent.memory.add("kept")
    before = coder.state_dict()
    with pytest.raises(StateError, match=message) as caught:
        coder.load_state_dict(damage(good(), kind))
    assert "\\n" not in str(caught.value)
    assert coder.state_dict() == before


def test_not_strict_takes_what_fits_and_tells_the_rest() -> None:
    state = good()
    state["stranger.memory"] = []
    del state["agent.memory"]
    coder = Coder()
    found = coder.load_state_dict(state, strict=False)
    assert found.missing_keys == ["agent.memory"]
    assert found.unexpected_keys == ["stranger.memory"]
    assert len(coder.memory.get_memory()) == 2


def test_a_failure_in_the_middle_restores_what_was_loaded_before_it() -> None:
    class Full(Memory):
        def load(self, memories: Any, overwrite: bool = True) -> None:
            if memories:
                raise OSError("disk full")
            super().load(memories, overwrite)

    chain = Sequential(Agent(EchoModel()), Agent(EchoModel(), memory=Full))
    chain.memory.add("kept")
    before = chain.state_dict()
    state = {"version": 1, **{key: [{"content": "new"}] for key in before if key != "version"}}
    with pytest.raises(OSError, match="disk full"):
        chain.load_state_dict(state)
    assert chain.state_dict() == before


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
messages = st.builds(
    AgentMessage,
    content=st.text() | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}), max_size=2) | _json,
    sender=st.text(),
    formatted=_json | st.builds(ParsedResponse, content=st.text(), value=_json),
    extra_info=_json,
    type=st.none() | st.text(),
    receiver=st.none() | st.text(),
    stream_state=st.integers(0, 8),
)


@given(st.lists(messages, max_size=4))
def test_any_messages_survive_a_round_trip(contents: list[AgentMessage]) -> None:
    agent, other = Agent(EchoModel()), Agent(EchoModel())
    agent.memory.add(contents)
    state = json.loads(json.dumps(agent.state_dict()))
    unchanged = copy.deepcopy(state)
    other.load_state_dict(state)
    assert other.state_dict() == state == unchanged


def test_an_agent_without_memory_has_no_key() -> None:
    assert list(Sequential(Agent(memory=None), memory=None).state_dict()) == ["version"]
