"""The kits for models."""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from lagent.errors import ContextOverflowError, ModelConfigurationError, ModelError
from lagent.llms import Capabilities
from lagent.schema import ModelChunk, ModelResponse, Usage
from lagent.testing.kit import items, value_of
from lagent.testing.model_capabilities import CapabilityTests
from lagent.testing.model_kit import ask, whole

__all__ = ["AsyncModelTests", "ModelTests"]


class ModelTests(CapabilityTests):
    """What every model has to do, scripted or real.

    Fixtures:
        model: the model. Give the fixture ``scope="class"`` if it is costly to load.
        failing_model: a model whose engine or server fails every request (optional; a closed port, a wrong key).

    What the model's ``capabilities`` do not name is not tested, but has to be refused.

    For what can be set, see :class:`lagent.testing.model_kit.ModelKit`.
    """

    # Answers

    def test_capabilities_are_declared(self, model: Any) -> None:
        assert isinstance(model.capabilities, Capabilities)

    def test_chat(self, model: Any) -> None:
        response = self.chat(model, ask(self.prompt))
        assert isinstance(response, ModelResponse)
        assert isinstance(response.content, str)
        assert response == response.content
        assert response.content or response.reasoning
        assert response.finish_reason in ("stop", "length")

    def test_system_message(self, model: Any) -> None:
        assert self.chat(model, [{"role": "system", "content": "Be brief."}, *ask(self.prompt)])

    def test_conversation_of_several_turns(self, model: Any) -> None:
        assert self.chat(model, [*ask("Hello!"), {"role": "assistant", "content": "Hello."}, *ask(self.prompt)])

    def test_unicode(self, model: Any) -> None:
        assert isinstance(self.chat(model, ask("请用中文回答：1+1=？ 🙂 \u200b\x00")), ModelResponse)

    def test_request_is_not_changed(self, model: Any) -> None:
        messages = [{"role": "system", "content": "Be brief."}, *ask(self.prompt)]
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
        self.chat(model, ask(self.prompt), temperature=0.5, stop_words=["###"])
        assert model.gen_params == before, "sampling parameters of one request have become the model's defaults"

    def test_batch_in_order(self, model: Any) -> None:
        questions = [ask(f"{self.prompt} ({number})") for number in range(3)]
        answers = self.chat(model, questions)
        assert isinstance(answers, list)
        assert [type(answer) for answer in answers] == [ModelResponse] * 3
        if self.deterministic:
            assert answers == [self.chat(model, question) for question in questions], "answers belong to other questions"

    @pytest.mark.parametrize("session_id", [0, 1, "1", "会话/ß%*"])
    def test_any_session(self, model: Any, session_id: int | str) -> None:
        assert self.chat(model, ask(self.prompt), session_id=session_id)
        value_of(model.close_session, session_id)
        value_of(model.close_session, session_id)
        assert self.chat(model, ask(self.prompt), session_id=session_id), "a closed session cannot be used again"

    # Sampling

    def test_max_new_tokens(self, model: Any) -> None:
        self.skip_unless(self.limits_tokens, "limits_tokens is False")
        response = self.chat(model, ask(self.long_prompt), max_new_tokens=4)
        assert response.finish_reason == "length"
        if self.returns_usage:
            assert response.usage.completion_tokens <= 4

    def test_stop_words(self, model: Any) -> None:
        self.skip_unless(self.deterministic, "deterministic is False")
        answer = self.chat(model, ask(self.prompt)).content
        stop = answer[len(answer) // 2 :][:4]
        for response in (
            self.chat(model, ask(self.prompt), stop_words=[stop]),
            whole(self.stream(model, ask(self.prompt), stop_words=[stop])),
        ):
            assert response.content == answer.partition(stop)[0], f"the stop word {stop!r} did not end the answer where it begins"
            assert response.finish_reason == "stop"

    def test_unknown_sampling_parameter_is_refused(self, model: Any) -> None:
        self.skip_unless(model.sampling_parameters is not None, "the model takes any sampling parameter")
        with pytest.raises(ModelConfigurationError, match="no_such_parameter"):
            self.chat(model, ask(self.prompt), no_such_parameter=1)

    # Usage

    def test_usage(self, model: Any) -> None:
        self.skip_unless(self.returns_usage, "returns_usage is False")
        short, long = self.chat(model, ask("Hello!")).usage, self.chat(model, ask("Hello! " * 50)).usage
        _check_usage(short)
        assert long.prompt_tokens > short.prompt_tokens, "a longer prompt did not count more prompt tokens"

    def test_usage_of_a_stream(self, model: Any) -> None:
        self.skip_unless(self.returns_usage, "returns_usage is False")
        question = ask(self.prompt)
        usage = whole(self.stream(model, question)).usage
        _check_usage(usage)
        assert usage is not None
        assert usage.prompt_tokens == self.chat(model, question).usage.prompt_tokens

    # Streaming

    def test_stream(self, model: Any) -> None:
        text, last = "", None
        for chunk in self.stream(model, ask(self.prompt)):
            assert isinstance(chunk, ModelChunk)
            assert last is None or last.finish_reason is None, "a chunk follows the one with the finish_reason"
            text += chunk.content
            assert chunk.text == text, "the text so far is not what the increments add up to"
            last = chunk
        assert last is not None
        assert last.finish_reason in ("stop", "length")
        assert text or last.reasoning
        if self.deterministic:
            assert text == self.chat(model, ask(self.prompt)).content, "the stream gives another text than the whole answer"

    def test_stream_comes_in_pieces(self, model: Any) -> None:
        self._needs(model, "streaming")
        chunks = sum(bool(chunk.content or chunk.reasoning) for chunk in self.stream(model, ask(self.long_prompt)))
        assert chunks > 1, "capabilities name 'streaming', but the answer came in one piece"

    def test_closing_a_stream(self, model: Any) -> None:
        with closing(self.stream(model, ask(self.long_prompt))) as stream:  # type: ignore[type-var]
            next(stream)
        self._wait_until_idle(model)
        assert self.chat(model, ask(self.prompt)), "the model does not answer after a stream was closed"

    def test_closing_a_stream_stops_the_engine(self, model: Any) -> None:
        self.skip_unless(self.running_requests(model) is not None, "running_requests() is not overridden")
        self._needs(model, "streaming")
        with closing(self.stream(model, ask(self.long_prompt), max_new_tokens=2_000)) as stream:  # type: ignore[type-var]
            next(stream)
            assert self.running_requests(model) == 1, "running_requests() does not see the request that is being streamed"
        self._wait_until_idle(model)

    # Concurrency

    def test_concurrent_requests(self, model: Any) -> None:
        questions = [ask(f"{self.prompt} ({number})") for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: self.chat(model, questions[n], session_id=n), range(8)))
        assert all(isinstance(answer, ModelResponse) for answer in answers)
        if self.deterministic:
            assert answers == [self.chat(model, question) for question in questions], "concurrent answers were mixed up"

    def test_concurrent_streams(self, model: Any) -> None:
        questions = [ask(f"{self.prompt} ({number})") for number in range(4)]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda n: whole(self.stream(model, questions[n], session_id=n)), range(4)))
        assert all(answer.finish_reason for answer in answers)
        if self.deterministic:
            assert answers == [self.chat(model, question) for question in questions], "concurrent streams were mixed up"

    # Errors

    def test_context_overflow(self, model: Any) -> None:
        self.skip_unless(self.overflow_prompt, "overflow_prompt is not set")
        with pytest.raises(ContextOverflowError):
            self.chat(model, ask(self.overflow_prompt))
        assert self.chat(model, ask(self.prompt)), "the model does not answer after a request that was too long"

    def test_errors(self, failing_model: Any) -> None:
        with pytest.raises(ModelError) as caught:
            self.chat(failing_model, ask(self.prompt))
        _check_error(caught.value)

    def test_errors_of_a_stream(self, failing_model: Any) -> None:
        with pytest.raises(ModelError) as caught:
            list(self.stream(failing_model, ask(self.prompt)))
        _check_error(caught.value)


class AsyncModelTests(ModelTests):
    """:class:`ModelTests`, and what an asynchronous model has to do beyond.

    The tests are plain functions and need no plugin for pytest. All of them run the model on one event loop, in a thread.
    """

    def test_methods_are_asynchronous(self, model: Any) -> None:
        assert inspect.iscoroutinefunction(model.chat)
        assert inspect.iscoroutinefunction(model.generate)
        stream = model.stream_chat(ask(self.prompt), **self.sampling)
        assert hasattr(stream, "__anext__")
        assert list(items(stream))
        assert model.blocking is False, "an asynchronous model must not ask to be called in a thread"

    def test_event_loop_stays_free(self, model: Any) -> None:
        for _ in range(3):  # a busy machine may hold up any loop once
            longest, total = value_of(_longest_silence, lambda: model.chat(ask(self.prompt), **self.sampling))
            if total < 0.2 or longest < total / 2:
                return
        pytest.fail(f"the event loop stood still for {longest:.2f} s of a request of {total:.2f} s")

    def test_cancelling_a_request(self, model: Any) -> None:
        async def cancel() -> None:
            task = asyncio.ensure_future(model.chat(ask(self.long_prompt), **{**self.sampling, "max_new_tokens": 2_000}))
            await asyncio.sleep(0.05)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=self.patience)
            assert done, "a cancelled request went on"
            if not task.cancelled():
                assert isinstance(task.result(), ModelResponse)  # it had ended before

        value_of(cancel)
        self._wait_until_idle(model)
        assert self.chat(model, ask(self.prompt)), "the model does not answer after a request was cancelled"

    def test_requests_overlap(self, model: Any) -> None:
        async def gather() -> list[Any]:
            questions = [ask(f"{self.prompt} ({number})") for number in range(8)]
            return await asyncio.gather(*(model.chat(q, session_id=n, **self.sampling) for n, q in enumerate(questions)))

        answers = value_of(gather)
        assert len(answers) == 8
        assert all(isinstance(answer, ModelResponse) for answer in answers)


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
