"""The prompts of guided tool calls."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.errors import ModelConfigurationError
from lagent_llamacpp.transcript import Step, Tool, Turn, choice, turns_of, written


def schema(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "shout", **function}}


EXAMPLE = {"question": "Shout hi!", "arguments": {"text": "hi"}, "result": "HI", "answer": "HI!"}


def test_an_example_becomes_a_finished_turn() -> None:
    tool = Tool.of(schema(examples=[EXAMPLE]))
    assert written(tool.examples) == (
        'Question: Shout hi!\nCall: {"name": "shout", "arguments": {"text": "hi"}}\nResult: HI\nAnswer: HI!\n'
    )


def test_an_open_turn_ends_where_the_model_goes_on() -> None:
    assert (
        written([Turn("A?", [], "B."), Turn("C?", [Step("{}", "D")])])
        == "Question: A?\nAnswer: B.\n\nQuestion: C?\nCall: {}\nResult: D\n"
    )


def test_a_conversation_in_openai_form() -> None:
    calls = [
        {"id": str(i), "type": "function", "function": {"name": "shout", "arguments": json.dumps({"text": t})}}
        for i, t in enumerate("ab")
    ]
    system, turns = turns_of(
        [
            {"role": "system", "content": "Be loud."},
            {"role": "user", "content": [{"type": "text", "text": "Shout a\nand b"}]},
            {"role": "assistant", "content": "…", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "1", "content": "B"},
            {"role": "tool", "tool_call_id": "0", "content": "A"},
            {"role": "assistant", "content": "A and B"},
            {"role": "user", "content": "More!"},
        ]
    )
    assert system == "Be loud."
    first = [
        Step('{"name": "shout", "arguments": {"text": "a"}}', "A"),
        Step('{"name": "shout", "arguments": {"text": "b"}}', "B"),
    ]
    assert turns == [Turn("Shout a and b", first, "A and B"), Turn("More!")]


def test_whatever_has_no_bound_gets_one() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "string", "maxLength": 5},
            "c": {"type": "array", "items": {"type": "string"}},
            "d": {"type": "string", "enum": ["x"]},
        },
    }
    assert Tool.of(schema(parameters=parameters)).parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "maxLength": 200},
            "b": {"type": "string", "maxLength": 5},
            "c": {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 8},
            "d": {"type": "string", "enum": ["x"]},
        },
        "additionalProperties": False,
    }


def test_the_choice_shows_a_description_where_there_are_no_examples() -> None:
    tools = [Tool.of(schema(examples=[EXAMPLE])), Tool.of(schema(name="whisper", description="Whispers a text."))]
    questions, shown = choice(tools)
    assert questions["shout"] == ["Shout hi!"]
    assert questions["whisper"] == ["Whispers a text."]
    line = "Question: Whispers a text.\nTool: whisper\n\n"
    assert [text.endswith(line) for text in shown] == [True, False]
    assert all(line in text for text in shown)


def test_one_tool_has_one_order() -> None:
    assert len(choice([Tool.of(schema())])[1]) == 1


@pytest.mark.parametrize("tool", [{}, {"function": {}}, schema(examples=[{"question": "?"}]), schema(examples=["text"])])
def test_a_tool_that_is_none(tool: dict[str, Any]) -> None:
    with pytest.raises(ModelConfigurationError, match="function schema"):
        Tool.of(tool)


@given(
    st.lists(st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": st.none() | st.text()}))
)
def test_any_conversation_can_be_written(messages: list[dict[str, Any]]) -> None:
    _, turns = turns_of(messages)
    assert written(turns).count("Question: ") >= len(turns) >= 1
