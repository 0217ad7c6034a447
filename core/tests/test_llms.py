"""The base of models: one implementation, two colours; checks, batches, retries; templates."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from lagent.errors import (
    AuthenticationError,
    EngineError,
    ModelConfigurationError,
    ModelConnectionError,
    RateLimitError,
    UnsupportedCapabilityError,
)
from lagent.llms import INTERNLM2_META, AsyncBaseLLM, BaseLLM, Capabilities, LMTemplateParser, check_template
from lagent.schema import ModelChunk, ModelResponse, ToolCall, Usage

HELLO = [{"role": "user", "content": "hello"}]


class Scripted(BaseLLM):
    """Follows a script of results and errors; remembers the requests."""

    capabilities = Capabilities(raw_prompts=True, streaming=True)

    def __init__(self, *script: Any, **options: Any) -> None:
        super().__init__("scripted", **options)
        self.script, self.requests = list(script), []  # type: ignore[var-annotated]

    def next(self, request: Any) -> Any:
        self.requests.append(request)
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


class Whole(Scripted):
    def _complete(self, request: Any) -> Any:
        return self.next(request)


class Streamed(Scripted):
    def _stream(self, request: Any) -> Any:
        for piece in self.next(request):
            if isinstance(piece, Exception):
                raise piece
            yield piece


class AsyncWhole(Scripted, AsyncBaseLLM):
    async def _complete(self, request: Any) -> Any:
        return self.next(request)


class AsyncStreamed(Scripted, AsyncBaseLLM):
    async def _stream(self, request: Any) -> Any:
        for piece in self.next(request):
            if isinstance(piece, Exception):
                raise piece
            yield piece


def chat(model: Any, *args: Any, **kwargs: Any) -> Any:
    result = model.chat(*args, **kwargs)
    return asyncio.run(result) if isinstance(model, AsyncBaseLLM) else result


def chunks(model: Any, *args: Any, **kwargs: Any) -> list[ModelChunk]:
    async def read() -> list[ModelChunk]:
        return [chunk async for chunk in model.stream_chat(*args, **kwargs)]

    return asyncio.run(read()) if isinstance(model, AsyncBaseLLM) else list(model.stream_chat(*args, **kwargs))


RESPONSE = ModelResponse("a b", reasoning="r", tool_calls=[ToolCall("t", {"x": 1}, "i")], finish_reason="stop", usage=Usage(1, 2))


@pytest.fixture(params=[Whole, AsyncWhole], ids=["plain", "async"])
def whole(request: Any) -> Any:
    return request.param


@pytest.fixture(params=[Streamed, AsyncStreamed], ids=["plain", "async"])
def streamed(request: Any) -> Any:
    return request.param


class TestDerived:
    def test_a_stream_of_a_whole_answer(self, whole: Any) -> None:
        (chunk,) = chunks(whole(RESPONSE), HELLO)
        assert (chunk.content, chunk.reasoning, chunk.finish_reason, chunk.usage) == ("a b", "r", "stop", Usage(1, 2))
        assert chunk.tool_calls[0].arguments == '{"x": 1}'
        (chunk,) = chunks(whole(ModelResponse(tool_calls=[ToolCall("t", "raw")])), HELLO)
        assert chunk.tool_calls[0].arguments == "raw"

    def test_a_whole_answer_of_a_stream(self, streamed: Any) -> None:
        response = chat(streamed([ModelChunk("a "), ModelChunk("b", usage=Usage(1, 2))]), HELLO)
        assert (response, response.finish_reason, response.usage) == ("a b", "stop", Usage(1, 2))
        assert chat(streamed([ModelChunk("a", finish_reason="length")]), HELLO).finish_reason == "length"

    def test_every_stream_ends_with_a_reason(self, streamed: Any) -> None:
        assert [c.finish_reason for c in chunks(streamed([ModelChunk("a")]), HELLO)] == [None, "stop"]
        assert [c.finish_reason for c in chunks(streamed([]), HELLO)] == ["stop"]
        assert [c.finish_reason for c in chunks(streamed([ModelChunk("a", finish_reason="length")]), HELLO)] == ["length"]

    def test_a_text_counts_as_an_answer(self, whole: Any) -> None:
        assert isinstance(chat(whole("x"), HELLO), ModelResponse)

    def test_a_backend_that_implements_nothing(self) -> None:
        for method in (BaseLLM().chat, lambda m: list(BaseLLM().stream_chat(m))):
            with pytest.raises(NotImplementedError, match="implements neither"):
                method(HELLO)
        with pytest.raises(NotImplementedError):
            BaseLLM()._stream(None)  # type: ignore[arg-type]

    def test_generate_continues_raw_text(self, whole: Any, streamed: Any) -> None:
        model = whole("x")
        result = model.generate("Once", temperature=0.0)
        assert (asyncio.run(result) if asyncio.iscoroutine(result) else result) == "x"
        assert (model.requests[0].prompt, model.requests[0].params["temperature"]) == ("Once", 0.0)
        stream = streamed([ModelChunk("y")]).stream_generate("Once")
        if hasattr(stream, "__anext__"):

            async def read() -> Any:
                return [chunk async for chunk in stream]

            assert asyncio.run(read())[0].content == "y"
        else:
            assert next(stream).content == "y"

    def test_a_batch_is_answered_in_order(self, whole: Any) -> None:
        model = whole("1", "2", "3")
        assert sorted(chat(model, [HELLO, HELLO, HELLO], ["a", "b", "c"])) == ["1", "2", "3"]
        assert {r.session_id for r in model.requests} == {"a", "b", "c"}
        assert len({r.request_id for r in model.requests}) == 3
        with pytest.raises(ValueError, match="zip"):
            chat(whole("1"), [HELLO, HELLO], ["a"])


class TestChecks:
    def test_sampling_parameters(self) -> None:
        model = Whole("x", temperature=0.5, stop_words="end", seed=3)
        model.chat(HELLO, top_k=1, stop_words="now")
        params = model.requests[0].params
        assert (params["temperature"], params["top_k"], params["stop_words"], params["seed"]) == (0.5, 1, ["now"], 3)
        assert model.gen_params["stop_words"] == ["end"]

        class Picky(Whole):
            sampling_parameters = frozenset({"temperature", "top_k"})

        with pytest.raises(
            ModelConfigurationError, match="Picky knows no sampling parameter 'tempreature'; it knows temperature, top_k"
        ):
            Picky("x").chat(HELLO, tempreature=1)
        with pytest.raises(ModelConfigurationError):
            Picky("x", nonsense=1)

    @pytest.mark.parametrize("wanted", [{"tools": [{}]}, {"output_schema": {"type": "string"}}, {"grammar": "root ::= x"}])
    def test_what_a_model_cannot_do_is_refused_before_the_call(self, whole: Any, wanted: Any) -> None:
        model = whole("x")
        with pytest.raises(UnsupportedCapabilityError, match="does not support"):
            chat(model, HELLO, **wanted)
        with pytest.raises(UnsupportedCapabilityError):
            chunks(model, HELLO, **wanted)
        assert model.requests == []

    def test_raw_text_for_a_model_that_takes_none(self) -> None:
        model = Whole("x")
        model.capabilities = Capabilities()
        with pytest.raises(UnsupportedCapabilityError, match="call chat, not generate"):
            model.generate("Once")

    @pytest.mark.parametrize(
        ("messages", "sent"),
        [
            ([{"role": "system", "content": "s"}, *HELLO], [{"role": "user", "content": "s\n\nhello"}]),
            ([{"role": "system", "content": "s"}], [{"role": "user", "content": "s"}]),
            (
                [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "t"}]}],
                [{"role": "user", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "t"}]}],
            ),
            (HELLO, HELLO),
        ],
    )
    def test_a_system_prompt_for_a_model_without_that_role(self, messages: Any, sent: Any) -> None:
        model = Whole("x")
        model.capabilities = Capabilities(system_role=False)
        model.chat(messages)
        assert model.requests[0].messages == sent

    def test_close_does_nothing_by_default(self) -> None:
        model = BaseLLM()
        assert model.close_session("s") is model.close() is None


class TestRetries:
    def test_passing_failures_are_tried_again_with_a_new_id(self, whole: Any) -> None:
        model = whole(RateLimitError("slow", retry_after=0), ModelConnectionError("gone"), EngineError("hiccup"), "x", retries=3)
        assert chat(model, HELLO) == "x"
        assert len({request.request_id for request in model.requests}) == 4

    def test_others_are_not(self, whole: Any) -> None:
        model = whole(AuthenticationError("key"), "x", retries=3)
        with pytest.raises(AuthenticationError):
            chat(model, HELLO)
        assert len(model.requests) == 1

    def test_only_so_often(self, whole: Any) -> None:
        model = whole(*[EngineError("x")] * 3, retries=1)
        with pytest.raises(EngineError):
            chat(model, HELLO)
        assert len(model.requests) == 2

    def test_the_server_says_how_long(self) -> None:
        began = time.monotonic()
        assert Whole(RateLimitError("slow", retry_after=0.05), "x", retries=1).chat(HELLO) == "x"
        assert time.monotonic() - began >= 0.05

    def test_a_stream_is_tried_again_until_its_first_chunk(self, streamed: Any) -> None:
        model = streamed([EngineError("x")], [ModelChunk("a"), EngineError("late")], retries=5)
        with pytest.raises(EngineError, match="late"):
            chunks(model, HELLO)
        assert len(model.requests) == 2


def own_template(messages: Any) -> str:
    text = "<s>" + "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return text + "<|im_start|>assistant\n"


class TestTemplates:
    def test_internlm2(self) -> None:
        messages = [
            {"role": "system", "content": "s"},
            {"role": "system", "content": "t", "name": "plugin"},
            {"role": "user", "content": "u", "name": "Ann"},
            {"role": "assistant", "content": "a"},
            {"role": "environment", "content": "e", "name": "interpreter"},
        ]
        assert LMTemplateParser(INTERNLM2_META)(messages) == (
            "<|im_start|>system\ns<|im_end|>\n"
            "<|im_start|>system name=<|plugin|>\nt<|im_end|>\n"
            "<|im_start|>user name=Ann\nu<|im_end|>\n"
            "<|im_start|>assistant\na<|im_end|>\n"
            "<|im_start|>environment name=<|interpreter|>\ne<|im_end|>\n"
            "<|im_start|>assistant\n"
        )

    def test_other_forms(self) -> None:
        meta = [
            {"role": "user", "begin": "U: ", "end": "\n"},
            {"role": "assistant", "begin": "A: ", "end": "\n", "generate": True},
            {"role": "critic", "fallback_role": "user"},
        ]
        parser = LMTemplateParser(meta)
        assert parser([{"role": "critic", "content": "x"}]) == "U: x\nA: "
        assert parser([{"role": "user", "content": "x"}, {"role": "assistant", "content": "We"}]) == "U: x\nA: We"
        assert LMTemplateParser(INTERNLM2_META)([{"role": "assistant", "content": "a"}]).endswith("a<|im_end|>\n")
        assert parser("raw") == "raw"
        assert parser(["text ", {"role": "user", "content": "x"}]) == "text U: x\nA: "
        assert LMTemplateParser()([{"role": "user", "content": "x"}, "", "y"]) == "x\ny"

    def test_a_text_that_the_model_does_not_continue(self) -> None:
        parser = LMTemplateParser(
            [{**item, "generate": True} if item["role"] == "assistant" else item for item in INTERNLM2_META]
        )
        said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        assert parser(said) + "<|im_end|>\n" == parser(said, generate=False)
        assert parser(said[:1], generate=False) == "<|im_start|>user\na<|im_end|>\n"

    @pytest.mark.parametrize("wrong", ["chatml", {"role": "user"}, [{"begin": "x"}], [3], [{"role": "a"}, {"role": "a"}]])
    def test_what_is_no_template(self, wrong: Any) -> None:
        with pytest.raises(ModelConfigurationError, match="meta_template"):
            LMTemplateParser(wrong)

    def test_an_unknown_role_is_found_before_the_call(self) -> None:
        model = Whole("x", meta_template=INTERNLM2_META)
        with pytest.raises(ModelConfigurationError, match="no role 'tool'"):
            model.chat([{"role": "tool", "content": "x"}])
        assert model.requests == []
        model.chat(HELLO)
        assert model.requests[0].prompt == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"

    def test_check(self) -> None:
        parser = LMTemplateParser(INTERNLM2_META)
        assert check_template(parser, own_template, on_mismatch="error")
        with pytest.raises(ModelConfigurationError, match=r"does not match the chat template.*(?s:.)*meta_template\n@@"):
            check_template(parser, lambda messages: own_template(messages).replace("im_start", "start"), on_mismatch="error")
        with pytest.warns(UserWarning, match="does not match"):
            assert not check_template(parser, lambda messages: "[INST]" + own_template(messages) + "\n")
        assert check_template(parser, lambda messages: "else", on_mismatch="ignore")
        assert check_template(LMTemplateParser(), lambda messages: "else", on_mismatch="error")


def test_images_are_refused_where_they_are_new() -> None:
    model = Whole("x")
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]}
    with pytest.raises(UnsupportedCapabilityError, match="does not support 'images'"):
        model.chat([image])
    assert model.chat([image, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}])
