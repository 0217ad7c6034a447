"""What users see of the embedded model, beside what the conformance kit tests."""

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lagent.errors import ModelConfigurationError
from lagent.llms import INTERNLM2_META, LMTemplateParser, check_template
from lagent_llamacpp import AsyncLlamaCppModel, LlamaCppModel


def ask(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_importing_the_plugin_loads_no_engine() -> None:
    code = "import sys, lagent_llamacpp; print([name for name in ('xllamacpp', 'huggingface_hub', 'pydantic') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_an_unread_stream_does_not_keep_the_program_alive() -> None:
    code = (
        "from lagent_llamacpp import LlamaCppModel\n"
        "stream = LlamaCppModel(n_ctx=32000, n_parallel=1).stream_generate('Once', max_new_tokens=31000, grammar='root ::= [a-z ]*')\n"
        "print(len(next(stream).content) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "True"


def test_a_seed_makes_sampling_repeatable(llm: LlamaCppModel) -> None:
    def sample(seed: int) -> str:
        return str(llm.chat(ask("Invent a name for a cat."), temperature=1.5, top_k=0, top_p=1.0, seed=seed, max_new_tokens=12))

    assert sample(1) == sample(1)
    assert len({sample(seed) for seed in range(4)}) > 1


def test_white_space_does_not_fill_structured_output(llm: LlamaCppModel) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}  # fmt: skip
    answer = llm.chat(ask("Describe a person."), output_schema=schema, max_new_tokens=64)
    assert answer == json.dumps(json.loads(answer), ensure_ascii=False)


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "#/nowhere"}])
def test_a_schema_that_is_none(llm: LlamaCppModel, schema: dict[str, Any]) -> None:
    with pytest.raises(ModelConfigurationError):
        llm.chat(ask("Hello"), output_schema=schema)


def test_a_grammar_that_is_none(llm: LlamaCppModel) -> None:
    with pytest.raises(ModelConfigurationError, match="grammar"):
        llm.chat(ask("Hello"), grammar="root ::= (")


def test_schema_and_grammar_exclude_each_other(llm: LlamaCppModel) -> None:
    with pytest.raises(ModelConfigurationError, match="exclude"):
        llm.chat(ask("Hello"), grammar='root ::= "x"', output_schema={"type": "string"})


def test_a_parameter_of_the_wrong_type(llm: LlamaCppModel) -> None:
    with pytest.raises(ModelConfigurationError, match="temperature"):
        llm.chat(ask("Hello"), temperature="hot")


def test_logprobs(llm: LlamaCppModel) -> None:
    for response in (
        llm.chat(ask("Hello"), logprobs=3, max_new_tokens=2),
        llm.generate("One, two, three,", logprobs=3, max_new_tokens=2),
    ):
        assert [len(token["top_logprobs"]) for token in response.extra["logprobs"]] == [3, 3]


def test_sessions_that_alternate_keep_their_cache(llm: LlamaCppModel) -> None:
    """More sessions than can run at once, each with a history of its own: every next turn computes the new messages only."""
    histories = [[*ask(f"{name} is my cat. " * 12)] for name in ("Kitty", "Whiskers", "Simba")]
    for history in histories:
        answer = llm.chat(history, session_id=id(history), max_new_tokens=4)
        history += [{"role": "assistant", "content": str(answer)}, *ask("Go on.")]
    for history in histories:
        usage = llm.chat(history, session_id=id(history), max_new_tokens=1).usage
        assert usage is not None
        assert usage.cached_tokens is not None
        assert usage.prompt_tokens - usage.cached_tokens < 40


def test_threads_get_their_own_answers(llm: LlamaCppModel) -> None:
    prompts = [f"Letters: {letter}, {letter}, {letter}," for letter in "ABCD"]
    alone = [str(llm.generate(prompt, max_new_tokens=6)) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda prompt: str(llm.generate(prompt, max_new_tokens=6)), prompts))
    assert together == alone


async def test_cancelling_a_task_stops_the_generation(async_llm: AsyncLlamaCppModel) -> None:
    task = asyncio.ensure_future(async_llm.generate("Once upon a time", max_new_tokens=900))
    await _until(lambda: _running(async_llm) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until(lambda: _running(async_llm) == 0)
    assert (await async_llm.generate("Once upon a time", max_new_tokens=1)).usage.completion_tokens == 1


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the engine tells nobody
        await asyncio.sleep(0.01)


def _running(model: LlamaCppModel) -> int:
    return sum(slot["is_processing"] for slot in model._engine.ask("/slots"))


def test_nobody_else_can_use_the_port(llm: LlamaCppModel) -> None:
    address = llm._engine._server.listening_address
    assert address.startswith("http://127.0.0.1:")
    request = urllib.request.Request(f"{address}/v1/completions", data=b'{"prompt": "x"}')
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as answer:
        assert answer.code == 401


def test_a_chat_template_of_ones_own() -> None:
    model = LlamaCppModel(n_ctx=512, chat_template="{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}")
    try:
        assert model.apply_chat_template(ask("Hi")) == "[user] Hi\n"
    finally:
        model.close()
    model.close()
    with pytest.raises(ModelConfigurationError, match="closed"):
        model.chat(ask("Hi"))


def test_meta_template_is_compared_with_the_models_own(llm: LlamaCppModel) -> None:
    assert check_template(LMTemplateParser(INTERNLM2_META), llm.apply_chat_template, on_mismatch="error")
    wrong = [{"role": role, "begin": f"[{role}]", "end": "\n"} for role in ("system", "user", "assistant")]
    with pytest.raises(ModelConfigurationError, match=r"(?s)does not match.*\[user\]"):
        LlamaCppModel(n_ctx=512, meta_template=wrong, on_template_mismatch="error")
