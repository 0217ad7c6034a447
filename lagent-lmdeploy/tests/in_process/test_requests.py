"""What is refused, what fails, and what is left behind: nothing."""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lagent.errors import ContextOverflowError, EngineError, ModelConfigurationError
from lagent_lmdeploy import AsyncLMDeployPipeline

from .conftest import BACKEND, PATH, make_alone
from .test_kit import fail

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def idle(model: Any) -> None:
    """Assert that nothing is left in the engine, in LMDeploy's books or on its event loop."""
    engine = model._engine
    deadline = time.monotonic() + 30
    while engine.running and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.running == 0
    assert engine._engine.session_mgr.sessions == {}
    assert engine._engine.session_mgr.request_handle_pool.num_dispatched == 0
    assert engine._running == set()
    if BACKEND != "turbomind":  # a reader that was counted and never comes back keeps the loop of the engine spinning
        assert engine._engine.engine.req_manager._send_count == 0


def test_a_hundred_cancellations_leave_nothing_running(make: Callable[..., Any]) -> None:
    # With few places, some requests are cancelled while they wait for one.
    model = make(AsyncLMDeployPipeline, pipeline_cfg={"max_batch_size": 4})
    moments = random.Random(0)

    async def cancel(number: int) -> None:
        options: dict[str, Any] = {"session_id": number % 5, "max_new_tokens": 500, "ignore_eos": True}
        if number % 2:
            task = asyncio.ensure_future(model.chat(QUESTION, **options))
            await asyncio.sleep(moments.uniform(0, 0.7))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            stream = model.stream_chat(QUESTION, **options)
            for _ in range(moments.randrange(6)):
                await anext(stream)
            await stream.aclose()

    async def main() -> None:
        await model.chat(QUESTION)
        for _ in range(10):
            await asyncio.gather(*(cancel(number) for number in range(10)))

    asyncio.run(main())
    idle(model)
    assert "Paris" in asyncio.run(model.chat(QUESTION)), "the engine does not answer after requests were cancelled"


def test_one_model_on_two_event_loops(async_pipeline: Any) -> None:
    answers = [asyncio.run(async_pipeline.chat(QUESTION)) for _ in range(2)]
    assert answers[0] == answers[1]


def test_a_closed_stream_has_stopped(pipeline: Any) -> None:
    stream = pipeline.stream_chat(QUESTION, max_new_tokens=1500, ignore_eos=True)
    next(stream)
    assert pipeline._engine.running == 1
    stream.close()
    idle(pipeline)


def test_an_engine_that_died(make: Callable[..., Any]) -> None:
    if BACKEND == "turbomind":
        pytest.skip("turbomind runs no code of users that could fail")
    model = make()
    stream = model.stream_chat(QUESTION, max_new_tokens=1500, ignore_eos=True)
    next(stream)
    with pytest.raises(EngineError, match=r"restart\(\)") as first:
        model.chat(QUESTION, temperature=1.0, logits_processors=[fail])
    assert "fails inside the engine" in str(first.value.__cause__)
    with pytest.raises(EngineError, match=r"restart\(\)"):  # what ran beside it
        list(stream)
    with pytest.raises(EngineError, match=r"restart\(\)") as second:
        model.chat(QUESTION)
    assert second.value.__cause__ is first.value.__cause__
    model.restart()
    assert "Paris" in model.chat(QUESTION)


def test_closing_while_it_answers(make: Callable[..., Any]) -> None:
    model = make()
    stream = model.stream_chat(QUESTION, max_new_tokens=1500, ignore_eos=True)
    next(stream)
    model.close()
    with pytest.raises(EngineError, match="closed"):
        list(stream)
    assert "Paris" in model.chat(QUESTION), "a closed model does not start again"


def test_a_model_that_is_dropped_is_closed() -> None:
    model = make_alone()
    model.chat(QUESTION)
    thread = model._engine._pipeline.internal_thread.thread
    assert thread.is_alive()
    del model
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_too_long_a_prompt(make: Callable[..., Any]) -> None:
    model = make(pipeline_cfg={"session_len": 256})
    with pytest.raises(ContextOverflowError, match="session_len"):
        model.generate("word " * 256)
    nearly = model.generate("word " * 250, max_new_tokens=100, ignore_eos=True)
    assert nearly.finish_reason == "length"
    assert 250 < nearly.usage.prompt_tokens + nearly.usage.completion_tokens <= 256
    idle(model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 3.0}, "temperature"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"regex": "[a-c"}, "Unclosed"),
        ({"grammar": "no grammar"}, "response format"),
        ({"response_format": {"type": "no_such_form"}}, "no_such_form"),
        ({"regex": "a", "output_schema": {"type": "object"}}, "exclude each other"),
        ({"regex": "a", "grammar": 'root ::= "a"'}, "exclude each other"),
        ({"lora": "unknown"}, "no LoRA adapter 'unknown'"),
        ({"no_such_parameter": 1}, "no_such_parameter"),
    ],
)
def test_requests_that_are_refused(pipeline: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigurationError, match=message):
        pipeline.chat(QUESTION, **options)
    idle(pipeline)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pipeline_cfg": {"session_length": 10}}, "did you mean 'session_len'"),
        ({"pipeline_cfg": {"dtype": "float8"}}, "refuses its options"),
        ({"backend": "vllm"}, "'turbomind' or 'pytorch'"),
        ({"backend": "turbomind", "adapters": {"a": "folder"}, "pipeline_cfg": {"cache_block_seq_len": 64}}, "no LoRA"),
        ({"model_name": "internlm-chat"}, "no chat template 'internlm-chat'"),
        ({"chat_template_config": {"no_such_field": ""}}, "no_such_field"),
        ({"model_name": "vicuna", "chat_template": "{{ messages }}"}, "exclude each other"),
        ({"path": "/no/such/folder"}, "/no/such/folder"),
    ],
)
def test_arguments_that_are_refused(options: dict[str, Any], message: str) -> None:
    from lagent_lmdeploy import LMDeployPipeline

    with pytest.raises(ModelConfigurationError, match=message):
        LMDeployPipeline(**{"path": PATH, "backend": "pytorch", **options})


def test_a_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    without_weights = shutil.copytree(PATH, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    model = make_alone(path=str(without_weights))
    for _ in range(2):
        with pytest.raises(ModelConfigurationError, match="LMDeploy cannot load") as caught:
            model.chat(QUESTION)
        assert caught.value.__cause__ is not None
