"""The base of models in an engine of this process. The engine here is a stand-in that writes what the question tells it to, on an
event loop as the real ones do; the tests of lagent-vllm and lagent-lmdeploy run the same kit on the real ones."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any, ClassVar

import pytest

from lagent.agents import Agent
from lagent.errors import EngineError, ModelConfigurationError, UnsupportedCapabilityError
from lagent.llms import INTERNLM2_META, Capabilities
from lagent.schema import Usage
from lagent.testing import AsyncModelTests, ModelTests
from lagent.testing.kit import value_of
from lagent_engines import AsyncEngineMixin, Bridge, EngineModel, Generation, Piece, Source

from .conftest import TEMPLATES, tokenizer_of

_SAMPLING = frozenset({"max_new_tokens", "temperature", "top_p", "top_k", "repetition_penalty", "stop_words"})


class ScriptedEngine(EngineModel):
    """Writes the text between ``[[`` and ``]]`` of the prompt's end, else counts; one character a token."""

    sampling_parameters: ClassVar[frozenset[str]] = _SAMPLING | {"return_token_ids", "chat_template_kwargs"}

    def __init__(self, template: str = "hermes", **options: Any) -> None:
        self.template = template
        self.running: set[str] = set()
        self.generations: list[Generation] = []
        self.loads = 0
        super().__init__("scripted", **options)

    def _load_tokenizer(self) -> Any:
        return tokenizer_of("bytes", self.template)

    def _load(self) -> None:
        self.loads += 1
        self.bridge = Bridge()

    def _unload(self) -> None:
        self.bridge.close()

    def _stop_words(self, params: Any) -> list[str]:
        return list(params.pop("stop_words", ()))

    def _generate(self, generation: Generation) -> Source:
        self.generations.append(generation)
        return self.bridge.stream(lambda: self._write(generation))

    async def _write(self, generation: Generation) -> AsyncGenerator[Piece, None]:
        self.running.add(generation.request_id)
        try:
            prompt = self._tokenizer.decode(generation.prompt_ids)
            told = re.findall(r"\[\[(.*?)\]\]", prompt[max(prompt.rfind("user\n"), 0) :], re.DOTALL)
            text = told[-1] if told else ", ".join(map(str, range(40)))
            if generation.output_schema is not None:
                text = json.dumps({"name": "get_weather", "arguments": {"city": "Paris"}})
            limit = generation.params.get("max_new_tokens", 10**6)
            for character in text[:limit]:
                await asyncio.sleep(0.001)
                yield Piece(character, self._tokenizer.encode(character))
            usage = Usage(len(generation.prompt_ids), min(len(text), limit), cached_tokens=len(generation.prompt_ids) // 2)
            yield Piece(
                token_ids=[self._tokenizer.eos_token_id], finish_reason="length" if limit < len(text) else "stop", usage=usage
            )
        finally:
            self.running.discard(generation.request_id)


class AsyncScriptedEngine(AsyncEngineMixin, ScriptedEngine):
    pass


class HoldingEngine(ScriptedEngine):
    """Says that it can hold the model to a schema."""

    engine_capabilities = Capabilities(json_schema=True, raw_prompts=True, streaming=True)


class ScriptedTests:
    kind: ClassVar[Any]
    deterministic = True
    sampling: ClassVar[dict[str, Any]] = {"max_new_tokens": 200}

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls) -> Iterator[Any]:
        model = cls.kind()
        yield model
        value_of(model.close)

    def running_requests(self, model: Any) -> int:
        return len(model.running)


class TestScriptedEngine(ScriptedTests, ModelTests):
    kind = ScriptedEngine


class TestAsyncScriptedEngine(ScriptedTests, AsyncModelTests):
    kind = AsyncScriptedEngine


@pytest.fixture
def model() -> Iterator[ScriptedEngine]:
    model = ScriptedEngine()
    yield model
    model.close()


def ask(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


TOOL = ModelTests.tool


def test_the_engine_starts_with_the_first_request_or_at_once() -> None:
    later, now = ScriptedEngine(), ScriptedEngine(load="now")
    assert (later.loads, now.loads) == (0, 1)
    for model in (later, now):
        model.chat(ask("[[a]]"))
        assert model.loads == 1
        model.close()
        model.close()
        assert model.chat(ask("[[a]]")) == "a"
        model.restart()
        assert model.loads == 3
        model.close()
    with pytest.raises(ModelConfigurationError, match="load must be 'first use' or 'now', not 'soon'"):
        ScriptedEngine(load="soon")


def test_tool_calls_and_reasoning_of_the_template_are_read(model: ScriptedEngine) -> None:
    text = '[[<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>]]'
    response = model.chat(ask(text), tools=[TOOL])
    assert [(call.name, call.arguments) for call in response.tool_calls] == [("get_weather", {"city": "Oslo"})]
    assert model.generations[-1].keep_special_tokens
    assert "<tool_call>" in model.chat(ask(text)).content, "without tools the text is left as it is"
    assert "<tool_call>" in model.chat(ask(text), tools=[TOOL], tool_choice="none").content

    thinking = ScriptedEngine("forgetful")
    response = thinking.chat(ask("[[<think>\nWhich?\n</think>\n\nThe fox.]]"))
    assert (response.content, response.reasoning) == ("The fox.", "Which?")
    assert thinking.capabilities.reasoning
    assert not thinking.capabilities.tools
    plain = ScriptedEngine("forgetful", reasoning_parser=None)
    assert plain.chat(ask("[[<think>\nWhich?\n</think>\n\nThe fox.]]")).reasoning is None
    started = ScriptedEngine("thoughtless")
    assert started.chat(ask("[[Which?\n</think>\n\nThe fox.]]")).reasoning == "Which?", "the template begins the reasoning"
    for each in (thinking, plain, started):
        each.close()


def test_an_agent_with_the_automatic_parser_reads_the_text_without_its_reasoning() -> None:
    model = ScriptedEngine("thoughtless")
    agent = Agent(model, output_format="auto")
    message = agent("[[Which?\n</think>\n\nThe fox.]]")
    assert message.content == message.formatted.content == "The fox."
    assert message.extra_info["reasoning"] == "Which?"
    model.close()


def test_a_conversation_extends_its_prompts_and_tells_token_ids(model: ScriptedEngine) -> None:
    agent = Agent(model, template="Be brief.")
    seen: list[int] = []
    for turn in range(4):
        info = agent(f"[[answer {turn}]]", return_token_ids=True).extra_info
        assert info["prompt_token_ids"][: len(seen)] == seen
        assert "history_rewritten" not in info
        seen = [*info["prompt_token_ids"], *info["token_ids"]]
    assert model._tokenizer.decode(seen).count("answer 2") == 2


def test_a_template_that_rewrites_history_is_reported_once_and_in_every_such_answer() -> None:
    model = ScriptedEngine("forgetful")
    agent = Agent(model)
    agent("[[<think>\nWhich?\n</think>\n\nThe fox.]]")
    with pytest.warns(UserWarning, match="the prompts of 'scripted' do not extend each other"):
        second = agent("[[<think>\nWhich?\n</think>\n\nThe dog.]]")
    assert "leaving out reasoning" in second.extra_info["history_rewritten"]
    assert "history_rewritten" in agent("[[c]]").extra_info
    model.close()


def test_the_requests_of_a_batch_run_together(model: ScriptedEngine) -> None:
    most = 0
    write = model._write

    async def watched(generation: Generation) -> AsyncGenerator[Piece, None]:
        nonlocal most
        async for piece in write(generation):
            most = max(most, len(model.running))
            yield piece

    model._write = watched  # type: ignore[method-assign]
    answers = model.chat([ask(f"[[answer {number}]]") for number in range(100)])
    assert answers == [f"answer {number}" for number in range(100)]
    assert most == 100


def test_a_batch_of_which_one_fails_leaves_nothing_running(model: ScriptedEngine) -> None:
    write = model._write

    async def failing(generation: Generation) -> AsyncGenerator[Piece, None]:
        async for piece in write(generation):
            if piece.text == "7":
                raise EngineError("dead")
            yield piece

    model._write = failing  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="dead"):
        model.chat([ask(f"[[answer {number}, and much more of it]]") for number in range(10)])
    assert not model.running


def test_what_the_template_has_no_place_for_is_refused_before_the_engine_starts() -> None:
    model = ScriptedEngine("inst")
    with pytest.raises(ModelConfigurationError, match="no place for messages of the role 'tool', only for user, assistant"):
        model.chat([*ask("a"), {"role": "assistant", "content": "b"}, {"role": "tool", "content": "c", "tool_call_id": "d"}])
    with pytest.raises(UnsupportedCapabilityError, match="does not support 'tools'"):
        model.chat(ask("a"), tools=[TOOL])
    with pytest.raises(ModelConfigurationError, match="exclude each other"):
        HoldingEngine().chat(ask("a"), tools=[TOOL], tool_choice="required", output_schema={"type": "object"})
    assert model.loads == 0
    answer = model.chat([{"role": "system", "content": "Be brief."}, *ask("[[a]]")])
    assert answer == "a"
    assert "Be brief." in model._tokenizer.decode(model.generations[-1].prompt_ids), "the system prompt was left out"
    model.close()


def test_a_meta_template_is_checked_and_used() -> None:
    with pytest.warns(UserWarning, match="meta_template does not match the chat template"):
        model = ScriptedEngine("inst", meta_template=INTERNLM2_META)
    assert model.chat([{"role": "system", "content": "Be brief."}, *ask("[[a]]")]) == "a"
    text = model._tokenizer.decode(model.generations[-1].prompt_ids)
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n[[a]]<|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(ModelConfigurationError, match="meta_template has no role 'tool'"):
        model.chat([*ask("a"), {"role": "tool", "content": "c"}])
    model.close()
    with pytest.raises(ModelConfigurationError, match="meta_template does not match"):
        ScriptedEngine("inst", meta_template=INTERNLM2_META, on_template_mismatch="error")
    ScriptedEngine("chatml", meta_template=INTERNLM2_META, on_template_mismatch="error")


def test_a_chat_template_of_the_user_takes_the_place_of_the_models_own() -> None:
    model = ScriptedEngine("inst", chat_template=TEMPLATES["hermes"])
    assert model.capabilities.tools
    assert model.chat_template == TEMPLATES["hermes"]


def test_variables_of_the_chat_template() -> None:
    switch = TEMPLATES["chatml"] + "{% if not thinking %}<think></think>{% endif %}"
    model = ScriptedEngine("chatml", chat_template=switch, chat_template_kwargs={"thinking": True})
    model.chat(ask("[[a]]"))
    assert "<think>" not in model._tokenizer.decode(model.generations[-1].prompt_ids)
    model.chat(ask("[[a]]"), chat_template_kwargs={"thinking": False})
    assert model._tokenizer.decode(model.generations[-1].prompt_ids).endswith("<think></think>")
    model.close()


def test_a_stop_word_of_the_adapter_stops_the_engine(model: ScriptedEngine) -> None:
    chunks = list(model.stream_chat(ask("[[one Observation: two]]"), stop_words=["Observation:"]))
    assert "".join(chunk.content for chunk in chunks) == "one "
    assert chunks[-1].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert not model.running


async def test_asynchronous_sessions_run_together() -> None:
    model = AsyncScriptedEngine()
    answers = await asyncio.gather(*(model.chat(ask(f"[[answer {number}]]"), number) for number in range(64)))
    assert answers == [f"answer {number}" for number in range(64)]
    await model.restart()
    assert await model.chat(ask("[[a]]")) == "a"
    await model.close()


async def test_requests_that_are_cancelled_at_any_moment_leave_nothing_running() -> None:
    model = AsyncScriptedEngine(load="now")
    prepare = model._prepare

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.005)  # in a thread, which a cancelled task leaves alone
        return prepare(*arguments)

    model._prepare = slowly  # type: ignore[method-assign]
    tasks = [asyncio.ensure_future(model.chat(ask(f"[[{'long ' * 1000}]]"), number)) for number in range(100)]
    for number, task in enumerate(tasks):
        await asyncio.sleep(0.0003 * (number % 5))
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.2)
    assert not model.running
    await model.close()
