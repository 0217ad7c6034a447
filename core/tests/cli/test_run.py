"""``lagent run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lagent import registry
from lagent.schema import AgentMessage, AgentStatusCode


def sum_of(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def broken() -> str:
    """Do what cannot be done."""
    raise RuntimeError("the disk is full")


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"content": f"I call {name}.", "tool_calls": [{"name": name, "arguments": arguments}]}


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(*answers: Any) -> Path:
        agent = {"type": "tools", "actions": ["sum_of", "broken"], "llm": {"type": "echo", "answers": list(answers)}}
        (tmp_path / "agent.json").write_text(json.dumps({"agent": agent}))
        return tmp_path / "agent.json"

    with registry.register("actions", "sum_of", sum_of), registry.register("actions", "broken", broken):
        yield write


def test_the_conversation_is_shown_and_the_answer_with_its_structure(lagent: Any, config: Any) -> None:
    code, out, err = lagent("run", config(call("sum_of", a=1, b=2), "It is 3."), "What is 1 + 2?")
    assert (code, err) == (0, "")
    conversation, answer = out.split("\n\n")
    assert conversation.splitlines() == [
        "user: What is 1 + 2?",
        "ToolAgent: I call sum_of.",
        "  → sum_of {'a': 1, 'b': 2}",
        "  ← 3",
        "ToolAgent: It is 3.",
    ]
    assert answer.startswith("content='It is 3.' sender='ToolAgent' formatted=")


def test_nothing_but_plain_text_goes_into_a_pipe(lagent: Any, config: Any) -> None:
    _, out, _ = lagent("run", config(call("broken"), "Sorry."), "Go on.")
    assert "\x1b" not in out


def test_json_has_a_message_a_line(lagent: Any, config: Any) -> None:
    code, out, _ = lagent("run", "--json", config(call("sum_of", a=1, b=2), "It is 3."), "What is 1 + 2?")
    messages = [AgentMessage.model_validate(json.loads(line)) for line in out.splitlines()]
    assert code == 0
    assert [message.stream_state for message in messages] == [
        AgentStatusCode.END,
        AgentStatusCode.END,
        AgentStatusCode.PLUGIN_START,
        AgentStatusCode.PLUGIN_RETURN,
        AgentStatusCode.END,
    ]
    assert messages[1].formatted["tool_calls"][0]["arguments"] == {"a": 1, "b": 2}
    assert messages[-1].content == "It is 3."


def test_an_answer_made_without_a_result_is_an_error(lagent: Any, config: Any) -> None:
    code, out, err = lagent("run", config(call("broken"), "Sorry."), "Go on.")
    assert code != 0
    assert "ToolAgent: Sorry." in out
    assert err.startswith("lagent: the action 'broken' failed: ")
    assert "the disk is full" in err
    assert err.count("\n") == 1


def test_a_failure_that_the_model_made_good_is_none(lagent: Any, config: Any) -> None:
    code, out, err = lagent("run", config(call("broken"), call("sum_of", a=1, b=2), "It is 3."), "What is 1 + 2?")
    assert (code, err) == (0, "")
    assert "the disk is full" in out


def test_an_error_of_the_model_is_told(lagent: Any, config: Any) -> None:
    code, out, err = lagent("run", config(), "What is 1 + 2?")
    assert code != 0
    assert out.splitlines() == ["user: What is 1 + 2?"]
    assert err == "lagent: the script of echo has 0 answers, this is request 1\n"


def test_reasoning_is_shown_and_a_call_without_text_has_no_line(lagent: Any, config: Any) -> None:
    silent = call("sum_of", a=1, b=2) | {"content": "", "reasoning": "I had better compute."}
    _, out, _ = lagent("run", config(silent, "It is 3."), "What is 1 + 2?")
    assert out.splitlines()[1:3] == ["ToolAgent: I had better compute.", "  → sum_of {'a': 1, 'b': 2}"]
    _, out, _ = lagent("run", config(silent | {"reasoning": None}, "It is 3."), "What is 1 + 2?")
    assert out.splitlines()[1] == "  → sum_of {'a': 1, 'b': 2}"


def test_hooks_do_not_make_the_answer_come_twice(lagent: Any, tmp_path: Path) -> None:
    agent = {"type": "agent", "llm": {"type": "echo", "answers": ["Yes."]}, "hooks": ["logger"]}
    (tmp_path / "agent.json").write_text(json.dumps({"agent": agent}))
    _, out, _ = lagent("run", tmp_path / "agent.json", "Well?")
    assert out.count("Agent: Yes.") == 1
