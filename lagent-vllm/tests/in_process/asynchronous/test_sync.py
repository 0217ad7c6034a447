"""The synchronous model as it is on a GPU: with a process of its own for the engine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from lagent.errors import EngineError
from lagent.testing.model_kit import ask
from lagent_vllm import VllmModel

QUESTION = ask("What is the capital of France?")


@pytest.mark.timeout(600)
def test_answers_death_restart_and_end(make: Callable[..., Any]) -> None:
    model = make(VllmModel)
    answer = model.chat(QUESTION)
    assert "Paris" in answer
    assert model.chat([QUESTION] * 4) == [answer] * 4
    stream = model.stream_chat(QUESTION, max_new_tokens=3000, ignore_eos=True)
    next(stream)
    assert model._engine.running == 1
    stream.close()
    assert model._engine.running == 0
    assert model.chat(QUESTION) == answer, "the engine does not answer after a stream was closed"

    (process,) = model._engine._engine.engine_core.resources.engine_manager.processes
    stream = model.stream_chat(QUESTION, max_new_tokens=3000, ignore_eos=True)
    next(stream)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"is dead.*restart\(\)"):
        for _ in stream:
            pass
    with pytest.raises(EngineError, match=r"is dead.*restart\(\)"):
        model.chat(QUESTION)
    model.restart()
    assert model.chat(QUESTION) == answer

    (process,) = model._engine._engine.engine_core.resources.engine_manager.processes
    model.close()
    assert not psutil.pid_exists(process.pid)
