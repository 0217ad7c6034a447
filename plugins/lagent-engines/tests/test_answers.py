"""What becomes of the text of an engine, in whatever pieces it comes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.errors import ModelConfigurationError
from lagent.registry import create
from lagent.schema import ModelResponse
from lagent_engines import Answer, Piece, required_call

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]},
    },
}
TEXT = (
    '<think>\nWhich fox?\n</think>\n\nI look it up.\n<tool_call>\n{"name": "look_up", "arguments": {"of": "fox"}}\n</tool_call>'
    '\n<tool_call>\n{"name": "look_up", "arguments": {"of": "dog"}}\n</tool_call>'
)
splits = st.lists(st.integers(0, len(TEXT)), max_size=30).map(sorted)


def answered(answer: Answer, text: str, cuts: list[int], finish_reason: str = "stop") -> ModelResponse:
    places = [0, *cuts, len(text)]
    pieces = [Piece(text[a:b], [a]) for a, b in pairwise(places)]
    for piece in [*pieces, Piece(finish_reason=finish_reason)]:
        answer.add(piece)
        if answer.stopped is not None:
            break
    return answer.response()


@given(splits)
def test_reasoning_and_tool_calls_are_apart_from_the_text(cuts: list[int]) -> None:
    answer = Answer(create("parsers", {"type": "hermes", "reasoning": "think", "tools": [TOOL]}))
    response = answered(answer, TEXT, cuts)
    assert (response.content.strip(), response.reasoning) == ("I look it up.", "Which fox?")
    assert [(call.name, call.arguments) for call in response.tool_calls] == [
        ("look_up", {"of": "fox"}),
        ("look_up", {"of": "dog"}),
    ]
    assert len({call.id for call in response.tool_calls}) == 2
    assert response.finish_reason == "tool_calls"
    reply = answer.reply()
    assert reply.verbatim
    message = {
        "role": "assistant",
        "content": response.content,
        "tool_calls": [{"function": {"name": call.name, "arguments": call.arguments_text}} for call in response.tool_calls],
    }
    assert reply.is_in(message)
    assert not reply.is_in({**message, "content": "Something else."})
    assert not reply.is_in({**message, "tool_calls": message["tool_calls"][:1]})


@given(
    splits,
    st.sampled_from([["</tool_call>"], ["fox", "dog"], ["\n<tool"], ["Which fox?\n</think>"], ["nowhere"], ["I", "I look"]]),
)
def test_a_text_ends_before_the_first_stop_word(cuts: list[int], stop_words: list[str]) -> None:
    answer = Answer(None, stop_words)
    response = answered(answer, TEXT, cuts)
    first = min((place for word in stop_words if (place := TEXT.find(word)) >= 0), default=len(TEXT))
    assert response.content == TEXT[:first]
    assert response.finish_reason == "stop"
    assert (answer.stopped is not None) == (first < len(TEXT)) == (not answer.reply().verbatim)


def test_text_is_held_back_only_as_long_as_it_may_be_a_stop_word() -> None:
    answer = Answer(None, ["Observation:"])
    assert [answer.add(Piece(text)).content for text in ("I Obs", "erve", "r Observ", "ation", ": 42")] == [
        "I ",
        "Observe",
        "r ",
        "",
        "",
    ]
    assert answer.stopped == "Observation:"


@pytest.mark.parametrize("finish_reason", ["length", "stop"])
def test_an_engine_that_ends_within_a_possible_stop_word_wrote_text(finish_reason: str) -> None:
    response = answered(Answer(None, ["Observation:"]), "I Observ", [], finish_reason)
    assert (response.content, response.finish_reason) == ("I Observ", finish_reason)


@given(st.lists(st.integers(0, 48), max_size=10).map(sorted))
def test_a_call_that_was_demanded(cuts: list[int]) -> None:
    answer = Answer(call=True)
    response = answered(answer, '{"name": "look_up", "arguments": {"of": "fox"}}', cuts)
    assert (response.content, response.finish_reason) == ("", "tool_calls")
    assert [(call.name, call.arguments) for call in response.tool_calls] == [("look_up", {"of": "fox"})]
    assert not answer.reply().verbatim, "the model did not write it in its own dialect"


def test_a_call_that_was_cut_off_stays_text() -> None:
    response = answered(Answer(call=True), '{"name": "look_up", "argum', [], "length")
    assert (response.content, response.finish_reason, response.tool_calls) == ('{"name": "look_up", "argum', "length", [])


def test_an_answer_that_was_broken_off_is_not_taken_over_as_it_is() -> None:
    answer = Answer()
    answer.add(Piece("the fox", [1, 2]))
    assert not answer.reply().verbatim


def test_the_schema_of_a_demanded_call() -> None:
    other = {"type": "function", "function": {"name": "stop"}}
    assert required_call([TOOL], "auto") is required_call([TOOL], None) is required_call([TOOL], "none") is None
    schema = required_call([TOOL, other], "required")
    assert schema is not None
    assert [each["properties"]["name"]["enum"] for each in schema["anyOf"]] == [["look_up"], ["stop"]]
    named = required_call([TOOL, other], {"type": "function", "function": {"name": "look_up"}})
    assert named is not None
    assert json.loads(json.dumps(named))["properties"]["arguments"] == TOOL["function"]["parameters"]
    for wrong in ("look_up", {"type": "function", "function": {"name": "find"}}, {}):
        with pytest.raises(ModelConfigurationError, match="name one of the tools look_up"):
            required_call([TOOL], wrong)
