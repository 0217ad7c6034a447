"""The kits for models: a correct model passes, and each broken one is caught by the test that is meant for it."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import attrs
import pytest

from lagent import flow
from lagent.errors import ContextOverflowError, ModelConnectionError, ModelError
from lagent.llms import AsyncBaseLLM, BaseLLM, Capabilities, ModelRequest
from lagent.schema import ModelChunk, ModelResponse, ToolCallDelta, Usage
from lagent.testing import AsyncModelTests, ModelTests

EVERYTHING = Capabilities(
    tools=True,
    json_schema=True,
    grammar=True,
    streaming=True,
    images=True,
    logprobs=True,
    raw_prompts=True,
    prefix_caching=True,
)


class ScriptedModel(BaseLLM):
    """Has every capability; answers with the words of the last message, its tool, or the least value of its schema."""

    capabilities = EVERYTHING
    window = 1_000

    def __init__(self) -> None:
        super().__init__("scripted", max_new_tokens=None)
        self.running = 0
        self.seen: list[list[str]] = []
        self.lock = threading.Lock()

    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        prompt = [str(m["content"]) for m in request.messages] or [request.prompt or ""]
        words = " ".join(prompt).split() or [""]
        if len(words) > self.window:
            raise ContextOverflowError(f"{len(words)} tokens do not fit {self.window}")
        cached = max((sum(a == b for a, b in zip(words, old, strict=False)) for old in self.seen), default=0)
        self.seen = [*self.seen[-20:], words]
        if request.tools and request.tool_choice == "required":
            yield ModelChunk(tool_calls=[ToolCallDelta(0, request.tools[0]["function"]["name"], '{"city":', request.request_id)])
            yield ModelChunk(tool_calls=[ToolCallDelta(0, arguments=' "Paris"}')])
            yield ModelChunk(finish_reason="tool_calls", usage=Usage(len(words), 5, cached))
            return
        if request.output_schema:
            text = json.dumps({"city": "Paris", "capital": True})
        elif "grammar" in request.params:
            text = "yes"
        else:
            text = f"You said: {prompt[-1]}"
        for stop in request.params["stop_words"]:
            text = text.partition(stop)[0]
        tokens, limit = re.findall(r"\S*\s*", text)[:-1], request.params["max_new_tokens"]
        for token in tokens[:limit]:
            yield ModelChunk(content=token)
        extra = (
            {"logprobs": [{"token": token, "logprob": -0.5} for token in tokens[:limit]]} if "logprobs" in request.params else {}
        )
        reason = "stop" if limit is None or len(tokens) <= limit else "length"
        usage = Usage(len(words), len(tokens[:limit]), min(cached, len(words)))
        yield ModelChunk(finish_reason=reason, usage=usage, extra=extra)

    def _stream(self, request: ModelRequest) -> Any:
        with self.lock:
            self.running += 1
        try:
            yield from self.pieces(request)
        finally:
            with self.lock:
                self.running -= 1


class AsyncScriptedModel(AsyncBaseLLM, ScriptedModel):
    async def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        self.running += 1
        try:
            for chunk in self.pieces(request):
                await asyncio.sleep(0.001)
                yield chunk
        finally:
            self.running -= 1


class FailingModel(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        try:
            raise ConnectionResetError("reset")
        except ConnectionResetError as error:
            raise ModelConnectionError("the server broke the connection; see whether it runs") from error
        yield


class TestScriptedModel(ModelTests):
    deterministic = True
    overflow_prompt = "word " * 1_001

    @pytest.fixture
    def model(self) -> ScriptedModel:
        return ScriptedModel()

    @pytest.fixture
    def failing_model(self) -> ScriptedModel:
        return FailingModel()

    def running_requests(self, model: ScriptedModel) -> int:
        return model.running


class AsyncFailingModel(AsyncScriptedModel):
    pieces = FailingModel.pieces


class TestAsyncScriptedModel(AsyncModelTests):
    deterministic = True
    overflow_prompt = TestScriptedModel.overflow_prompt
    running_requests = TestScriptedModel.running_requests

    @pytest.fixture
    def model(self) -> ScriptedModel:
        return AsyncScriptedModel()

    @pytest.fixture
    def failing_model(self) -> ScriptedModel:
        return AsyncFailingModel()


# Broken models -----------------------------------------------------------------------------------------------------


class Broken(ScriptedModel):
    """Changes the chunks of a correct model by :meth:`spoil`."""

    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        for chunk in super().pieces(request):
            yield from self.spoil(chunk, request)

    def spoil(self, chunk: ModelChunk, request: ModelRequest) -> Iterator[ModelChunk]:
        yield chunk


def spoiled(spoil: Callable[[ModelChunk, ModelRequest], Iterator[ModelChunk]]) -> type[Broken]:
    return type(spoil.__name__, (Broken,), {"spoil": lambda self, chunk, request: spoil(chunk, request)})


def changed(**fields: Any) -> type[Broken]:
    """Puts ``fields`` into every last chunk."""
    return spoiled(lambda chunk, _: iter([attrs.evolve(chunk, **fields) if chunk.finish_reason else chunk]))


@spoiled
def goes_on_after_its_end(chunk: ModelChunk, request: ModelRequest) -> Iterator[ModelChunk]:
    yield chunk
    if chunk.finish_reason:
        yield ModelChunk(content="one more")


@spoiled
def splits_tool_arguments_wrongly(chunk: ModelChunk, request: ModelRequest) -> Iterator[ModelChunk]:
    yield attrs.evolve(chunk, tool_calls=[attrs.evolve(call, arguments=call.arguments[:-1]) for call in chunk.tool_calls])


@spoiled
def names_another_tool(chunk: ModelChunk, request: ModelRequest) -> Iterator[ModelChunk]:
    yield attrs.evolve(chunk, tool_calls=[attrs.evolve(call, name=call.name and "other") for call in chunk.tool_calls])


@spoiled
def gives_no_tool_call_ids(chunk: ModelChunk, request: ModelRequest) -> Iterator[ModelChunk]:
    yield attrs.evolve(chunk, tool_calls=[attrs.evolve(call, id=None) for call in chunk.tool_calls])


class IgnoresTools(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        return super().pieces(attrs.evolve(request, tools=None))


class CallsToolsUnasked(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        return super().pieces(attrs.evolve(request, tool_choice="required"))


class CannotReadToolResults(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        if any(message["role"] == "tool" for message in request.messages):
            raise ValueError("unknown role")
        return super().pieces(request)


class IgnoresSchema(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        return super().pieces(attrs.evolve(request, output_schema=None))


class IgnoresParams(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        return super().pieces(attrs.evolve(request, params={"max_new_tokens": None, "stop_words": []}))


class MixesUp(ScriptedModel):
    """Keeps the request in an attribute while it waits."""

    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        self.request = request
        time.sleep(0.01)
        return super().pieces(self.request)


class ChangesMessages(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        request.messages[0]["content"] = str(request.messages[0]["content"]).strip()
        request.messages.append({"role": "user", "content": "…"})
        return super().pieces(request)


class KeepsParams(ScriptedModel):
    def update_gen_params(self, **params: Any) -> dict[str, Any]:
        self.gen_params = super().update_gen_params(**params)
        return self.gen_params


class Declares(ScriptedModel):
    capabilities: Any = ("tools", "streaming")


class DropsToolsSilently(ScriptedModel):
    capabilities = Capabilities(streaming=True)

    def chat(self, inputs: Any, session_id: Any = 0, **options: Any) -> Any:
        return super().chat(inputs, session_id, **{name: value for name, value in options.items() if name != "tools"})


class AnswersInOnePiece(ScriptedModel):
    def _stream(self, request: ModelRequest) -> Any:
        yield ModelChunk(content=self._fold_all(request), finish_reason="stop")

    def _fold_all(self, request: ModelRequest) -> str:
        return "".join(chunk.content for chunk in self.pieces(request))


class AnswersWithText(ScriptedModel):
    def chat(self, inputs: Any, session_id: Any = 0, **options: Any) -> Any:
        return str(super().chat(inputs, session_id, **options).content)


class ReversesBatches(ScriptedModel):
    def _batch(self, requests: list[ModelRequest]) -> Any:
        return (yield from super()._batch(requests[::-1]))


class GoesOnWhenClosed(ScriptedModel):
    def _stream(self, request: ModelRequest) -> Any:
        self.running += 1
        try:
            yield from self.pieces(request)
        finally:
            threading.Timer(60, setattr, (self, "running", 0)).daemon = True


class DiesWhenClosed(ScriptedModel):
    dead = False

    def _stream(self, request: ModelRequest) -> Any:
        if self.dead:
            raise RuntimeError("the engine is gone")
        try:
            yield from self.pieces(request)
        except GeneratorExit:
            self.dead = True
            raise


class TruncatesStreams(ScriptedModel):
    def _complete(self, request: ModelRequest) -> ModelResponse:
        pieces = list(self.pieces(request))
        return ModelResponse("".join(p.content for p in pieces), finish_reason="stop", usage=pieces[-1].usage)

    def _stream(self, request: ModelRequest) -> Any:
        *chunks, last = self.pieces(request)
        yield from chunks[:-1]
        yield last


class OneSession(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        if not isinstance(request.session_id, int):
            raise TypeError("session ids are numbers")
        return super().pieces(request)


class NoSystemRole(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        if any(message["role"] == "system" for message in request.messages):
            raise ValueError("unknown role")
        return super().pieces(request)


class NoHistory(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        if any(message["role"] == "assistant" for message in request.messages):
            raise ValueError("unknown role")
        return super().pieces(request)


class OnlyAscii(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        json.dumps(request.messages, ensure_ascii=False).encode("ascii")
        return super().pieces(request)


class OnlyChats(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        assert request.messages
        return super().pieces(request)


class DropsUnknownParams(ScriptedModel):
    sampling_parameters = frozenset({"max_new_tokens", "temperature"})

    def update_gen_params(self, **params: Any) -> dict[str, Any]:
        return super().update_gen_params(**{name: params[name] for name in params.keys() & self.sampling_parameters})


class OnlyText(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        if not all(isinstance(message["content"], str) for message in request.messages):
            raise TypeError("content must be text")
        return super().pieces(request)


class OverflowsAsAnything(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        try:
            yield from super().pieces(request)
        except ContextOverflowError as error:
            raise ModelError("something went wrong") from error


class FailsVaguely(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        raise ModelError("something went wrong") from ConnectionError()
        yield


class FailsWithoutCause(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        raise ModelConnectionError("the server does not answer")
        yield


class RaisesItsOwnErrors(ScriptedModel):
    def pieces(self, request: ModelRequest) -> Iterator[ModelChunk]:
        raise ConnectionError("refused")
        yield


class BlocksTheLoop(AsyncScriptedModel):
    async def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        time.sleep(0.4)  # noqa: ASYNC251
        for chunk in self.pieces(request):
            yield chunk


class IgnoresCancellation(AsyncScriptedModel):
    async def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        self.running += 1
        await asyncio.sleep(0.2)
        for chunk in self.pieces(request):
            yield chunk
        self.running -= 1


class PretendsToBeAsynchronous(AsyncScriptedModel):
    def chat(self, inputs: Any, session_id: Any = 0, **options: Any) -> Any:
        return flow.run(self._answer(inputs, session_id, options))


class TakesOneAtATime(AsyncScriptedModel):
    async def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        if self.running:
            raise RuntimeError("busy")
        async for chunk in super()._stream(request):
            yield chunk


BROKEN = [
    (Declares, "test_capabilities_are_declared"),
    (AnswersWithText, "test_chat"),
    (changed(finish_reason="eos"), "test_chat"),
    (NoSystemRole, "test_system_message"),
    (NoHistory, "test_conversation_of_several_turns"),
    (OnlyAscii, "test_unicode"),
    (ChangesMessages, "test_request_is_not_changed"),
    (KeepsParams, "test_defaults_are_not_changed_by_a_request"),
    (ReversesBatches, "test_batch_in_order"),
    (OneSession, "test_any_session"),
    (IgnoresParams, "test_max_new_tokens"),
    (IgnoresParams, "test_stop_words"),
    (DropsUnknownParams, "test_unknown_sampling_parameter_is_refused"),
    (changed(usage=None), "test_usage"),
    (changed(usage=Usage(7, 7)), "test_usage"),
    (changed(usage=Usage(10, 1, cached_tokens=11)), "test_usage"),
    (changed(usage=None), "test_usage_of_a_stream"),
    (changed(usage=Usage(10, 1)), "test_prefix_caching"),
    (goes_on_after_its_end, "test_stream"),
    (TruncatesStreams, "test_stream"),
    (AnswersInOnePiece, "test_stream_comes_in_pieces"),
    (DiesWhenClosed, "test_closing_a_stream"),
    (GoesOnWhenClosed, "test_closing_a_stream_stops_the_engine"),
    (MixesUp, "test_concurrent_requests"),
    (MixesUp, "test_concurrent_streams"),
    (IgnoresTools, "test_tools"),
    (names_another_tool, "test_tools"),
    (gives_no_tool_call_ids, "test_tools"),
    (changed(finish_reason="stop"), "test_tools"),
    (splits_tool_arguments_wrongly, "test_streamed_tools"),
    (CannotReadToolResults, "test_tool_results"),
    (CallsToolsUnasked, "test_tool_choice_none"),
    (IgnoresSchema, "test_output_schema"),
    (IgnoresSchema, "test_streamed_output_schema"),
    (IgnoresParams, "test_grammar"),
    (OnlyChats, "test_raw_prompt"),
    (changed(extra={"logprobs": []}), "test_logprobs"),
    (OnlyText, "test_images"),
    (DropsToolsSilently, "test_what_is_lacking_is_refused"),
    (OverflowsAsAnything, "test_context_overflow"),
    (FailsVaguely, "test_errors"),
    (FailsWithoutCause, "test_errors"),
    (RaisesItsOwnErrors, "test_errors_of_a_stream"),
    (BlocksTheLoop, "test_event_loop_stays_free"),
    (IgnoresCancellation, "test_cancelling_a_request"),
    (PretendsToBeAsynchronous, "test_methods_are_asynchronous"),
    (TakesOneAtATime, "test_requests_overlap"),
]


@pytest.mark.parametrize(("model", "test"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_model_is_caught_by_the_test_meant_for_it(
    model: type[ScriptedModel], test: str, caught: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = TestAsyncScriptedModel if issubclass(model, AsyncScriptedModel) else TestScriptedModel
    monkeypatch.setattr(kit, "patience", 0.3)
    assert caught(kit, test, model)


def test_every_test_of_the_kits_catches_something() -> None:
    uncaught = {name for name in dir(AsyncModelTests) if name.startswith("test_")} - {test for _, test in BROKEN}
    assert uncaught == set()
