"""The kits for models."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, ClassVar

import pytest

from lagent.errors import ContextOverflowError, ModelConfigurationError, ModelError, UnsupportedCapabilityError
from lagent.llms import Capabilities
from lagent.schema import ModelChunk, ModelResponse, ResponseBuilder, Usage
from lagent.testing.kit import Kit, items, value_of

__all__ = ["AsyncModelTests", "ModelTests"]

_PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

PATIENCE = 30.0
"""For how many seconds an engine may go on with a request after its caller has gone."""


class ModelTests(Kit):
    """What every model has to do, scripted or real.

    Fixtures:
        model: the model. Give the fixture ``scope="class"`` if it is costly to load.
        failing_model: a model whose engine or server fails every request (optional; a closed port, a wrong key).

    What the model's ``capabilities`` do not name is not tested, but has to be refused.

    Attributes:
        sampling: sampling parameters of every request.
        prompt: a question with a short answer.
        long_prompt: a request for an answer of a hundred tokens or more; the tests stop it early where they can.
        tool, tool_prompt: a tool in OpenAI's form, and a request that calls for it.
        output_schema, schema_prompt: a JSON schema, and a request for what it describes.
        deterministic: whether ``sampling`` makes the model give the same answer to the same question every time.
        returns_usage: whether answers carry token counts.
        limits_tokens: whether ``max_new_tokens`` ends the answer.
        overflow_prompt: a text that does not fit the context window, if there is one.
    """

    sampling: ClassVar[dict[str, Any]] = {"max_new_tokens": 64, "temperature": 0.0}
    prompt: ClassVar[str] = "What is the capital of France?"
    long_prompt: ClassVar[str] = (
        "Write down the numbers from one to two hundred in words, separated by commas, and leave none out."
    )
    tool: ClassVar[dict[str, Any]] = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "the city", "maxLength": 20}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    tool_prompt: ClassVar[str] = "What is the weather in Paris? Look it up."
    output_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "capital": {"type": "boolean"}},
        "required": ["city", "capital"],
        "additionalProperties": False,
    }
    schema_prompt: ClassVar[str] = "Is Paris a capital? Answer in JSON with the keys city and capital."
    deterministic: ClassVar[bool] = False
    returns_usage: ClassVar[bool] = True
    limits_tokens: ClassVar[bool] = True
    overflow_prompt: ClassVar[str | None] = None

    @pytest.fixture
    def model(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a fixture 'model' that returns the model to test")

    @pytest.fixture
    def failing_model(self) -> Any:
        pytest.skip("no fixture 'failing_model'")

    def running_requests(self, model: Any) -> int | None:
        """How many requests the engine is working on, as the engine itself counts them; ``None`` if that cannot be seen.

        Override it to have cancellation tested.
        """
        return None

    # For the tests

    def chat(self, model: Any, messages: Any, **options: Any) -> Any:
        return value_of(model.chat, messages, **{**self.sampling, **options})

    def stream(self, model: Any, messages: Any, **options: Any) -> Iterator[ModelChunk]:
        return items(model.stream_chat(messages, **{**self.sampling, **options}))

    def _needs(self, model: Any, capability: str) -> None:
        self.skip_unless(getattr(model.capabilities, capability), f"the model's capabilities do not name {capability!r}")

    def _wait_until_idle(self, model: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while (running := self.running_requests(model)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not running, f"{running} requests are still running in the engine after their caller has gone"

    # Answers

    def test_capabilities_are_declared(self, model: Any) -> None:
        assert isinstance(model.capabilities, Capabilities)

    def test_chat(self, model: Any) -> None:
        response = self.chat(model, _ask(self.prompt))
        assert isinstance(response, ModelResponse)
        assert isinstance(response.content, str)
        assert response == response.content
        assert response.content or response.reasoning
        assert response.finish_reason in ("stop", "length")

    def test_system_message(self, model: Any) -> None:
        assert self.chat(model, [{"role": "system", "content": "Be brief."}, *_ask(self.prompt)])

    def test_conversation_of_several_turns(self, model: Any) -> None:
        assert self.chat(model, [*_ask("Hello!"), {"role": "assistant", "content": "Hello."}, *_ask(self.prompt)])

    def test_unicode(self, model: Any) -> None:
        assert isinstance(self.chat(model, _ask("请用中文回答：1+1=？ 🙂 \u200b\x00")), ModelResponse)

    def test_request_is_not_changed(self, model: Any) -> None:
        messages = [{"role": "system", "content": "Be brief."}, *_ask(self.prompt)]
        options: dict[str, Any] = {"stop_words": ["###"]}
        if model.capabilities.tools:
            options["tools"] = [copy.deepcopy(self.tool)]
        before = copy.deepcopy((messages, options))
        self.chat(model, messages, **options)
        for _ in self.stream(model, messages, **options):
            pass
        assert (messages, options) == before, "the model has changed the messages or options of its caller"

    def test_defaults_are_not_changed_by_a_request(self, model: Any) -> None:
        before = copy.deepcopy(model.gen_params)
        self.chat(model, _ask(self.prompt), temperature=0.5, stop_words=["###"])
        assert model.gen_params == before, "sampling parameters of one request have become the model's defaults"

    def test_batch_in_order(self, model: Any) -> None:
        questions = [_ask(f"{self.prompt} ({number})") for number in range(3)]
        answers = self.chat(model, questions)
        assert isinstance(answers, list)
        assert [type(answer) for answer in answers] == [ModelResponse] * 3
        if self.deterministic:
            assert answers == [self.chat(model, question) for question in questions], "answers belong to other questions"

    @pytest.mark.parametrize("session_id", [0, 1, "1", "会话/ß%*"])
    def test_any_session(self, model: Any, session_id: int | str) -> None:
        assert self.chat(model, _ask(self.prompt), session_id=session_id)
        value_of(model.close_session, session_id)
        value_of(model.close_session, session_id)
        assert self.chat(model, _ask(self.prompt), session_id=session_id), "a closed session cannot be used again"

    # Sampling

    def test_max_new_tokens(self, model: Any) -> None:
        self.skip_unless(self.limits_tokens, "limits_tokens is False")
        response = self.chat(model, _ask(self.long_prompt), max_new_tokens=4)
        assert response.finish_reason == "length"
        if self.returns_usage:
            assert response.usage.completion_tokens <= 4

    def test_stop_words(self, model: Any) -> None:
        self.skip_unless(self.deterministic, "deterministic is False")
        answer = self.chat(model, _ask(self.prompt)).content
        stop = answer[len(answer) // 2 :][:4]
        for response in (
            self.chat(model, _ask(self.prompt), stop_words=[stop]),
            _whole(self.stream(model, _ask(self.prompt), stop_words=[stop])),
        ):
            assert response.content == answer.partition(stop)[0], f"the stop word {stop!r} did not end the answer where it begins"
            assert response.finish_reason == "stop"

    def test_unknown_sampling_parameter_is_refused(self, model: Any) -> None:
        self.skip_unless(model.sampling_parameters is not None, "the model takes any sampling parameter")
        with pytest.raises(ModelConfigurationError, match="no_such_parameter"):
            self.chat(model, _ask(self.prompt), no_such_parameter=1)

    # Usage

    def test_usage(self, model: Any) -> None:
        self.skip_unless(self.returns_usage, "returns_usage is False")
        short, long = self.chat(model, _ask("Hello!")).usage, self.chat(model, _ask("Hello! " * 50)).usage
        _check_usage(short)
        assert long.prompt_tokens > short.prompt_tokens, "a longer prompt did not count more prompt tokens"

    def test_usage_of_a_stream(self, model: Any) -> None:
        self.skip_unless(self.returns_usage, "returns_usage is False")
        question = _ask(self.prompt)
        usage = _whole(self.stream(model, question)).usage
        _check_usage(usage)
        assert usage is not None
        assert usage.prompt_tokens == self.chat(model, question).usage.prompt_tokens

    def test_prefix_caching(self, model: Any) -> None:
        self._needs(model, "prefix_caching")
        first = [{"role": "system", "content": "Answer the question about numbers. " * 40}, *_ask("What is 1 + 1?")]
        self.chat(model, first)
        second = [*first, {"role": "assistant", "content": "2"}, *_ask("And 2 + 2?")]
        assert (self.chat(model, second).usage.cached_tokens or 0) > 0, "nothing was reused of a prompt that extends the last one"

    # Streaming

    def test_stream(self, model: Any) -> None:
        text, last = "", None
        for chunk in self.stream(model, _ask(self.prompt)):
            assert isinstance(chunk, ModelChunk)
            assert last is None or last.finish_reason is None, "a chunk follows the one with the finish_reason"
            text += chunk.content
            assert chunk.text == text, "the text so far is not what the increments add up to"
            last = chunk
        assert last is not None
        assert last.finish_reason in ("stop", "length")
        assert text or last.reasoning
        if self.deterministic:
            assert text == self.chat(model, _ask(self.prompt)).content, "the stream gives another text than the whole answer"

    def test_stream_comes_in_pieces(self, model: Any) -> None:
        self._needs(model, "streaming")
        chunks = sum(bool(chunk.content or chunk.reasoning) for chunk in self.stream(model, _ask(self.long_prompt)))
        assert chunks > 1, "capabilities name 'streaming', but the answer came in one piece"

    def test_closing_a_stream(self, model: Any) -> None:
        with closing(self.stream(model, _ask(self.long_prompt))) as stream:  # type: ignore[type-var]
            next(stream)
        self._wait_until_idle(model)
        assert self.chat(model, _ask(self.prompt)), "the model does not answer after a stream was closed"

    def test_closing_a_stream_stops_the_engine(self, model: Any) -> None:
        self.skip_unless(self.running_requests(model) is not None, "running_requests() is not overridden")
        self._needs(model, "streaming")
        with closing(self.stream(model, _ask(self.long_prompt), max_new_tokens=2_000)) as stream:  # type: ignore[type-var]
            next(stream)
            assert self.running_requests(model) == 1, "running_requests() does not see the request that is being streamed"
        self._wait_until_idle(model)

    # Concurrency

    def test_concurrent_requests(self, model: Any) -> None:
        questions = [_ask(f"{self.prompt} ({number})") for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: self.chat(model, questions[n], session_id=n), range(8)))
        assert all(isinstance(answer, ModelResponse) for answer in answers)
        if self.deterministic:
            assert answers == [self.chat(model, question) for question in questions], "concurrent answers were mixed up"

    def test_concurrent_streams(self, model: Any) -> None:
        questions = [_ask(f"{self.prompt} ({number})") for number in range(4)]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda n: _whole(self.stream(model, questions[n], session_id=n)), range(4)))
        assert all(answer.finish_reason for answer in answers)
        if self.deterministic:
            assert answers == [self.chat(model, question) for question in questions], "concurrent streams were mixed up"

    # Tools

    def test_tools(self, model: Any) -> None:
        self._needs(model, "tools")
        options: dict[str, Any] = {"tools": [self.tool], "tool_choice": "required"}
        self._check_tool_calls(self.chat(model, _ask(self.tool_prompt), **options))

    def test_streamed_tools(self, model: Any) -> None:
        self._needs(model, "tools")
        options: dict[str, Any] = {"tools": [self.tool], "tool_choice": "required"}
        self._check_tool_calls(_whole(self.stream(model, _ask(self.tool_prompt), **options)))

    def test_tool_results(self, model: Any) -> None:
        self._needs(model, "tools")
        function = {"name": self.tool["function"]["name"], "arguments": '{"city": "Paris"}'}
        messages = [
            *_ask(self.tool_prompt),
            {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny, 20 °C"},
        ]
        assert isinstance(self.chat(model, messages, tools=[self.tool]), ModelResponse)

    def test_tool_choice_none(self, model: Any) -> None:
        self._needs(model, "tools")
        assert self.chat(model, _ask(self.tool_prompt), tools=[self.tool], tool_choice="none").tool_calls == []

    def _check_tool_calls(self, response: ModelResponse) -> None:
        function = self.tool["function"]
        assert response.tool_calls, "tool_choice='required' did not lead to a tool call"
        for call in response.tool_calls:
            assert call.name == function["name"]
            assert isinstance(call.arguments, dict), f"the arguments are not a JSON object: {call.arguments!r}"
            assert set(function["parameters"]["required"]) <= call.arguments.keys() <= function["parameters"]["properties"].keys()
            assert call.id, "a tool call has no id for its result to refer to"
        ids = [call.id for call in response.tool_calls]
        assert len(set(ids)) == len(ids), "tool calls share an id"
        assert response.finish_reason == "tool_calls"

    # Constrained output

    def test_output_schema(self, model: Any) -> None:
        self._needs(model, "json_schema")
        self._check_value(self.chat(model, _ask(self.schema_prompt), output_schema=self.output_schema))

    def test_streamed_output_schema(self, model: Any) -> None:
        self._needs(model, "json_schema")
        self._check_value(_whole(self.stream(model, _ask(self.schema_prompt), output_schema=self.output_schema)))

    def _check_value(self, response: ModelResponse) -> None:
        value = json.loads(response.content)
        kinds: dict[str, Any] = {
            "string": str,
            "boolean": bool,
            "integer": int,
            "number": (int, float),
            "object": dict,
            "array": list,
        }
        assert isinstance(value, dict)
        assert set(self.output_schema["required"]) <= value.keys() <= self.output_schema["properties"].keys()
        for name, schema in self.output_schema["properties"].items():
            assert name not in value or isinstance(value[name], kinds[schema["type"]]), f"{name!r} is no {schema['type']}"

    def test_grammar(self, model: Any) -> None:
        self._needs(model, "grammar")
        assert self.chat(model, _ask(self.prompt), grammar='root ::= "yes" | "no"').content in ("yes", "no")

    # Further capabilities, and the lack of them

    def test_raw_prompt(self, model: Any) -> None:
        self._needs(model, "raw_prompts")
        assert isinstance(value_of(model.generate, "One, two, three,", **self.sampling), ModelResponse)
        response = _whole(items(model.stream_generate("One, two, three,", **self.sampling)))
        assert response.finish_reason in ("stop", "length")

    def test_images(self, model: Any) -> None:
        self._needs(model, "images")
        parts = [{"type": "text", "text": "Which colour is this?"}, {"type": "image_url", "image_url": {"url": _PIXEL}}]
        assert self.chat(model, [{"role": "user", "content": parts}])

    @pytest.mark.parametrize("capability", ["tools", "json_schema", "grammar", "raw_prompts"])
    def test_what_is_lacking_is_refused(self, model: Any, capability: str) -> None:
        if getattr(model.capabilities, capability):
            pytest.skip(f"the model's capabilities name {capability!r}")
        requests: dict[str, dict[str, Any]] = {
            "tools": {"tools": [self.tool]},
            "json_schema": {"output_schema": self.output_schema},
            "grammar": {"grammar": 'root ::= "yes" | "no"'},
            "raw_prompts": {},
        }
        asked = requests[capability]
        raw = capability == "raw_prompts"
        with pytest.raises(UnsupportedCapabilityError):
            value_of(model.generate if raw else model.chat, "text" if raw else _ask(self.prompt), **asked)
        with pytest.raises(UnsupportedCapabilityError):
            list(items((model.stream_generate if raw else model.stream_chat)("text" if raw else _ask(self.prompt), **asked)))

    # Errors

    def test_context_overflow(self, model: Any) -> None:
        self.skip_unless(self.overflow_prompt, "overflow_prompt is not set")
        with pytest.raises(ContextOverflowError):
            self.chat(model, _ask(self.overflow_prompt))
        assert self.chat(model, _ask(self.prompt)), "the model does not answer after a request that was too long"

    def test_errors(self, failing_model: Any) -> None:
        with pytest.raises(ModelError) as caught:
            self.chat(failing_model, _ask(self.prompt))
        _check_error(caught.value)

    def test_errors_of_a_stream(self, failing_model: Any) -> None:
        with pytest.raises(ModelError) as caught:
            list(self.stream(failing_model, _ask(self.prompt)))
        _check_error(caught.value)


class AsyncModelTests(ModelTests):
    """:class:`ModelTests`, and what an asynchronous model has to do beyond.

    The tests are plain functions and need no plugin for pytest. All of them run the model on one event loop, in a thread.
    """

    def test_methods_are_asynchronous(self, model: Any) -> None:
        assert inspect.iscoroutinefunction(model.chat)
        assert inspect.iscoroutinefunction(model.generate)
        stream = model.stream_chat(_ask(self.prompt), **self.sampling)
        assert hasattr(stream, "__anext__")
        assert list(items(stream))
        assert model.blocking is False, "an asynchronous model must not ask to be called in a thread"

    def test_event_loop_stays_free(self, model: Any) -> None:
        longest, total = value_of(_longest_silence, lambda: model.chat(_ask(self.prompt), **self.sampling))
        assert total < 0.2 or longest < total / 2, f"the event loop stood still for {longest:.2f} s of a request of {total:.2f} s"

    def test_cancelling_a_request(self, model: Any) -> None:
        async def cancel() -> None:
            task = asyncio.ensure_future(model.chat(_ask(self.long_prompt), **{**self.sampling, "max_new_tokens": 2_000}))
            await asyncio.sleep(0.05)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=PATIENCE)
            assert done, "a cancelled request went on"
            if not task.cancelled():
                assert isinstance(task.result(), ModelResponse)  # it had ended before

        value_of(cancel)
        self._wait_until_idle(model)
        assert self.chat(model, _ask(self.prompt)), "the model does not answer after a request was cancelled"

    def test_requests_overlap(self, model: Any) -> None:
        async def gather() -> list[Any]:
            questions = [_ask(f"{self.prompt} ({number})") for number in range(8)]
            return await asyncio.gather(*(model.chat(q, session_id=n, **self.sampling) for n, q in enumerate(questions)))

        answers = value_of(gather)
        assert len(answers) == 8
        assert all(isinstance(answer, ModelResponse) for answer in answers)


def _ask(text: str | None) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def _whole(chunks: Iterator[ModelChunk]) -> ModelResponse:
    builder = ResponseBuilder()
    for chunk in chunks:
        builder.add(chunk)
    return builder.response()


def _check_usage(usage: Usage | None) -> None:
    assert isinstance(usage, Usage), "the answer carries no usage; set returns_usage = False if the model cannot count"
    assert usage.prompt_tokens > 0
    assert usage.completion_tokens > 0
    assert usage.cached_tokens is None or 0 <= usage.cached_tokens <= usage.prompt_tokens


def _check_error(error: ModelError) -> None:
    assert type(error) is not ModelError, "the error does not say what kind of failure it was; raise a subclass"
    assert str(error).strip(), "the error says nothing"
    assert error.__cause__ is not None, "the error is not chained to its cause (raise … from …)"


async def _longest_silence(request: Any) -> tuple[float, float]:
    """Run ``request`` and watch the event loop from a thread: the longest time for which it did not answer, and the whole time."""
    loop, finished, longest = asyncio.get_running_loop(), threading.Event(), 0.0

    def watch() -> None:
        nonlocal longest
        while not finished.is_set():
            answered, start = threading.Event(), time.monotonic()
            loop.call_soon_threadsafe(answered.set)
            while not answered.wait(0.01) and not finished.is_set():
                pass
            longest = max(longest, time.monotonic() - start)
            time.sleep(0.005)

    watcher, start = threading.Thread(target=watch, daemon=True), time.monotonic()
    watcher.start()
    try:
        await request()
    finally:
        finished.set()
        watcher.join()
    return longest, time.monotonic() - start
