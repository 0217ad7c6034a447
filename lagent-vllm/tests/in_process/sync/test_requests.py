"""What is refused, what fails, LoRA adapters, and what a closed model leaves behind: nothing."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lagent.errors import ContextOverflowError, EngineError, ModelConfigurationError
from lagent.testing.model_kit import ask
from lagent_vllm import VllmModel

from ..adapters import write_adapter
from ..conftest import CPU, PATH, SMALL

QUESTION = ask("What is the capital of France?")


def test_too_long_a_prompt_never_reaches_the_engine(sync_model: Any) -> None:
    with pytest.raises(ContextOverflowError, match=r"tokens and the engine takes 4096.*max_model_len"):
        sync_model.chat(ask("word " * 5000))
    assert sync_model._engine.running == 0


def test_arguments_are_checked_at_construction() -> None:
    with pytest.raises(ModelConfigurationError, match="'max_model_length'; is it 'max_model_len'"):
        VllmModel(PATH, vllm_cfg={"max_model_length": 1})
    with pytest.raises(ModelConfigurationError, match="as path and tp"):
        VllmModel(PATH, vllm_cfg={"tensor_parallel_size": 2})
    with pytest.raises(ModelConfigurationError, match="temprature"):
        VllmModel(PATH, temprature=1)
    with pytest.raises(ModelConfigurationError, match="no model with a tokenizer is found at '/no/such/model'"):
        VllmModel("/no/such/model")


def test_priorities_that_the_engine_would_not_heed(sync_model: Any) -> None:
    assert "Paris" in sync_model.chat(QUESTION, priority=0)
    with pytest.raises(ModelConfigurationError, match="'scheduling_policy': 'priority'"):
        sync_model.chat(QUESTION, priority=1)


def test_memory_that_does_not_suffice(make: Callable[..., Any], alone: None) -> None:
    model = make(VllmModel, vllm_cfg={"kv_cache_memory_bytes": 2**20})
    with pytest.raises(ModelConfigurationError, match="lower max_model_len, or raise gpu_memory_utilization") as caught:
        model.chat(QUESTION)
    assert caught.value.__cause__ is not None


def test_arguments_that_vllm_refuses(make: Callable[..., Any], alone: None) -> None:
    with pytest.raises(ModelConfigurationError, match=r"(?s)did not start with .*max_model_len"):
        make(VllmModel, vllm_cfg={"max_model_len": 10**9}, load="now")


def test_closed_streams_leave_nothing_in_the_engine(sync_model: Any) -> None:
    streams = [sync_model.stream_chat(QUESTION, number, max_new_tokens=2000, ignore_eos=True) for number in range(8)]
    for stream in streams:
        next(stream)
    assert sync_model._engine.running == 8
    for stream in streams[:6]:
        stream.close()
    assert sync_model._engine.running == 2
    del stream, streams
    gc.collect()
    assert sync_model._engine.running == 0
    assert sync_model._engine._engine.reset_prefix_cache(), "requests that nobody waits for hold blocks of the cache"
    assert "Paris" in sync_model.chat(QUESTION)


def test_a_closed_model_leaves_nothing_behind(make: Callable[..., Any], alone: None) -> None:
    model = make(VllmModel)
    before = set(threading.enumerate())
    waiting = threading.Thread(target=lambda: failures.append(_failure(model)))
    failures: list[Any] = []
    model.chat(QUESTION)
    waiting.start()
    while not model._engine.running:
        pass
    model.close()
    waiting.join()
    assert isinstance(failures[0], EngineError)
    assert "was closed" in str(failures[0])
    assert {thread.name for thread in set(threading.enumerate()) - before} <= {"tqdm_monitor"}
    assert list(Path("/dev/shm").glob("psm_*")) == []
    assert "Paris" in model.chat(QUESTION), "a closed model starts again when it is asked"
    model.close()


def test_one_engine_for_a_process_that_it_shares(make: Callable[..., Any], sync_model: Any) -> None:
    sync_model.chat(QUESTION)
    if not CPU:
        pytest.skip("the engine has a process of its own")
    with pytest.raises(ModelConfigurationError, match="room for one engine"):
        make(VllmModel, load="now")
    assert "Paris" in sync_model.chat(QUESTION)


def test_a_model_that_is_dropped_stops_its_engine(alone: None) -> None:
    model = VllmModel(PATH, vllm_cfg=SMALL)
    model.chat(QUESTION)
    engine = model._engine
    del model
    gc.collect()
    assert engine._engine is None


def test_adapters_and_priorities(make: Callable[..., Any], sync_model: Any, tmp_path: Path) -> None:
    adapters = {name: write_adapter(tmp_path / name, PATH, seed) for seed, name in enumerate(("one", "two"))}
    plain = sync_model.chat(QUESTION)
    sync_model.close()
    model = make(VllmModel, lora_modules=adapters, vllm_cfg={"max_loras": 2, "scheduling_policy": "priority", "max_num_seqs": 1})
    assert model.chat(QUESTION) == plain
    one, two = (model.chat(QUESTION, lora=name) for name in adapters)
    assert len({str(plain), str(one), str(two)}) == 3, "an adapter changes nothing"
    assert model.chat([QUESTION, QUESTION], lora="one") == [one, one]
    with pytest.raises(ModelConfigurationError, match="there is no LoRA adapter 'three'"):
        model.chat(QUESTION, lora="three")

    ended: list[int] = []
    first = model.stream_chat(QUESTION, max_new_tokens=100, ignore_eos=True)
    next(first)  # has the only place; the others wait for it
    threads = [threading.Thread(target=lambda n=n: (model.chat(QUESTION, priority=n), ended.append(n))) for n in (3, 1, 2)]
    for number, thread in enumerate(threads, 2):
        thread.start()
        while model._engine.running < number:
            pass
    first.close()
    for thread in threads:
        thread.join()
    assert ended == [1, 2, 3]

    model.close()
    with pytest.raises(ModelConfigurationError, match="did not start"):
        make(VllmModel, lora_modules={"gone": str(tmp_path / "gone")}, load="now")


def _failure(model: Any) -> Any:
    try:
        return model.chat(QUESTION, max_new_tokens=3000, ignore_eos=True)
    except EngineError as error:
        return error
