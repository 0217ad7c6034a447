"""The scripted model, as tests of other distributions rely on it."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent import registry
from lagent.errors import EngineError, ModelConfigurationError, RateLimitError, UnsupportedCapabilityError
from lagent.llms import Capabilities
from lagent.schema import ModelChunk, ModelResponse, ToolCall, Usage
from lagent_echo import AsyncEchoModel, EchoModel

HI = [{"role": "user", "content": "Say hi to me"}]


def both(answers=None, call="chat", **options):
    """The answer of both models to one request, which has to be the same."""
    asked = "Say hi to me" if call == "generate" else HI
    plain = getattr(EchoModel(answers, **options), call)(asked)
    asynchronous = asyncio.run(getattr(AsyncEchoModel(answers, **options), call)(asked))
    assert (plain, plain.tool_calls, plain.finish_reason, plain.usage) == (
        asynchronous,
        asynchronous.tool_calls,
        asynchronous.finish_reason,
        asynchronous.usage,
    )
    return plain


@pytest.mark.parametrize("kind", ["llms", "async_llms"])
def test_is_found_by_name(kind):
    model = registry.create(kind, {"type": "echo", "answers": ["yes"]})
    assert type(model) is {"llms": EchoModel, "async_llms": AsyncEchoModel}[kind]


def test_echoes_without_a_script():
    assert both() == "Say hi to me"
    assert both(call="generate") == "Say hi to me"
    parts = [{"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]}]
    assert EchoModel().chat(parts) == "look"


def test_counts_tokens_by_white_space():
    assert both("one two  three").usage == Usage(prompt_tokens=4, completion_tokens=3)


def test_takes_the_answers_in_order_and_tells_when_they_are_used_up():
    model = EchoModel(["one", ModelResponse("two", reasoning="why"), {"content": "three", "finish_reason": "length"}])
    answers = [model.chat(HI) for _ in range(3)]
    assert answers == ["one", "two", "three"]
    assert [(a.reasoning, a.finish_reason) for a in answers] == [(None, "stop"), ("why", "stop"), (None, "length")]
    with pytest.raises(ModelConfigurationError, match="3 answers, this is request 4"):
        model.chat(HI)


def test_asks_a_function_of_either_colour():
    async def later(messages):
        await asyncio.sleep(0)
        return messages[0]["content"].upper()

    assert both(lambda messages: messages[0]["content"].upper()) == "SAY HI TO ME"
    assert both(later) == "SAY HI TO ME"


def test_calls_tools():
    answer = both([[ToolCall("add", {"a": 1}), "and", ToolCall("mul", "not json", id="x")]])
    assert answer.tool_calls == [ToolCall("add", {"a": 1}, "call_1_0"), ToolCall("mul", "not json", "x")]
    assert (answer, answer.finish_reason) == ("and", "tool_calls")
    assert both(ToolCall("add")).finish_reason == "tool_calls"


@pytest.mark.parametrize("error", [RateLimitError("slow down", retry_after=0), EngineError("broken"), KeyboardInterrupt])
def test_raises_what_the_script_says(error):
    with pytest.raises(error if isinstance(error, type) else type(error)):
        EchoModel([error]).chat(HI)


def test_a_failure_is_retried_with_the_next_answer():
    model = EchoModel([RateLimitError("slow down", retry_after=0), "now"], retries=1)
    assert model.chat(HI) == "now"
    assert len({request.request_id for request in model.requests}) == 2


def test_breaks_in_the_middle_of_a_stream():
    stream = EchoModel([["a", "b", EngineError("gone")]]).stream_chat(HI)
    assert [next(stream).content, next(stream).content] == ["a", "b"]
    with pytest.raises(EngineError, match="gone"):
        next(stream)


def test_streams_given_chunks_again_and_again():
    model = EchoModel([["a", ModelChunk("b")]] * 2)
    for _ in range(2):
        assert [chunk.text for chunk in model.stream_chat(HI)] == ["a", "ab", "ab"]


@given(st.text())
def test_streaming_gives_the_same_text(text):
    chunks = list(EchoModel(text).stream_chat(HI))
    assert "".join(chunk.content for chunk in chunks) == chunks[-1].text == text
    assert [bool(chunk.finish_reason) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


@given(st.lists(st.text(max_size=4)), st.text(min_size=1, max_size=3))
def test_a_stop_word_ends_any_stream(pieces, stop):
    answer = EchoModel([pieces]).chat(HI, stop_words=[stop])
    assert answer == "".join(pieces).split(stop)[0]


def test_the_token_limit_ends_the_answer():
    answer = both("one two three four", max_new_tokens=2)
    assert (answer, answer.finish_reason, answer.usage.completion_tokens) == ("one two", "length", 2)
    assert EchoModel("one two").chat(HI, max_new_tokens=2).finish_reason == "stop"
    assert EchoModel("one two").chat(HI, max_new_tokens=0) == ""


def test_reads_a_recording(tmp_path):
    path = tmp_path / "answers.jsonl"
    call = {"tool_calls": [{"name": "add", "arguments": {"a": 1}}]}
    path.write_text(json.dumps("zwei\u2028Zeilen", ensure_ascii=False) + "\n\n" + json.dumps(call) + "\n", encoding="utf-8")
    model = EchoModel(recording=path)
    assert model.chat(HI) == "zwei\u2028Zeilen"
    assert model.chat(HI).tool_calls == [ToolCall("add", {"a": 1}, "call_2_0")]


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", "line 2"), ("[1]", "line 2"), ('{"text": "x"}', "no field 'text'"), ('{"tool_calls": [1]}', "tool call")],
)
def test_a_bad_recording_says_where(tmp_path, line, message):
    path = tmp_path / "answers.jsonl"
    path.write_text('"fine"\n' + line)
    with pytest.raises(ModelConfigurationError, match=message):
        EchoModel(recording=path)
    with pytest.raises(ModelConfigurationError, match="cannot be read"):
        EchoModel(recording=tmp_path / "absent.jsonl")
    with pytest.raises(ModelConfigurationError, match="not both"):
        EchoModel("x", recording=path)


def test_remembers_requests_as_they_were():
    model, messages = EchoModel("x"), [dict(HI[0])]
    model.chat(messages, session_id="s", tools=[{"type": "function"}], temperature=0.5)
    messages[0]["content"] = "changed"
    messages.append(HI[0])
    assert [(r.messages, r.session_id, r.params["temperature"]) for r in model.requests] == [(HI, "s", 0.5)]
    model.close_session("s")
    assert model.closed_sessions == ["s"]


def test_refuses_what_it_is_told_not_to_be_able_to_do():
    with pytest.raises(UnsupportedCapabilityError, match="tools"):
        EchoModel("x", capabilities=Capabilities()).chat(HI, tools=[{"type": "function"}])


def test_threads_and_tasks_get_an_answer_each():
    answers = [str(number) for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(EchoModel(answers).chat, [HI] * 200), key=int) == answers

    async def all_at_once():
        model = AsyncEchoModel(answers, delay=0.001)
        return await asyncio.gather(*(model.chat(HI) for _ in answers))

    assert sorted(asyncio.run(all_at_once()), key=int) == answers


async def test_closing_a_stream_stops_it():
    model = AsyncEchoModel(["never read to the end " * 1000], delay=0.001)
    stream = model.stream_chat(HI)
    assert (await anext(stream)).content == "never"
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
