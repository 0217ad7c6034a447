"""Sessions at once, several event loops, cancellation, death and the end of the process."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from lagent.errors import EngineError
from lagent.testing.model_kit import ask
from lagent_engines.testing import WORDS

from ..conftest import PATH, SMALL

QUESTION = ask("What is the capital of France?")
SHARED_MEMORY = Path("/dev/shm")


def idle(model: Any) -> None:
    """Assert that nothing is left in vLLM's books or in its engine."""
    engine = model._engine
    deadline = time.monotonic() + 30
    while engine.running and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.running == 0
    assert engine._running == {}
    free = engine._bridge.run(engine._engine.reset_prefix_cache())
    assert free, "requests that nobody waits for hold blocks of the cache"


def test_sessions_at_once_get_their_own_answers(async_model: Any) -> None:
    questions = [ask(f"Tell me about the word {word}.") for word in WORDS]

    async def main() -> tuple[list[Any], list[Any], list[Any]]:
        one_by_one = [await async_model.chat(question) for question in questions]
        calls = (async_model.chat(question, f"session {n}") for n, question in enumerate(questions))
        return one_by_one, await asyncio.gather(*calls), await async_model.chat(questions)

    one_by_one, at_once, batch = asyncio.run(main())
    assert at_once == one_by_one
    assert batch == one_by_one
    assert len(set(map(str, one_by_one))) > len(WORDS) // 2, "the questions do not tell the answers apart"


def test_several_event_loops_at_once_and_one_after_the_other(async_model: Any) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: asyncio.run(async_model.chat(QUESTION, n)), range(8)))
    assert "Paris" in answers[0]
    assert answers == [answers[0]] * 8


def test_a_timeout_ends_the_request(async_model: Any) -> None:
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(asyncio.wait_for(async_model.chat(QUESTION, max_new_tokens=3000, ignore_eos=True), 1))
    idle(async_model)


@pytest.mark.timeout(600)
def test_two_hundred_cancellations_leave_nothing_running(async_model: Any) -> None:
    moments = random.Random(0)

    async def cancel(number: int) -> None:
        options: dict[str, Any] = {"session_id": number % 7, "max_new_tokens": 1000, "ignore_eos": True}
        if number % 2:
            task = asyncio.ensure_future(async_model.chat(QUESTION, **options))
            await asyncio.sleep(moments.choice([0, 0.001, 0.01, moments.uniform(0, 0.5)]))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            stream = async_model.stream_chat(QUESTION, **options)
            for _ in range(moments.randrange(6)):
                await anext(stream)
            await stream.aclose()

    async def main() -> None:
        for _ in range(10):
            await asyncio.gather(*(cancel(number) for number in range(20)))

    expected = asyncio.run(async_model.chat(QUESTION))
    asyncio.run(main())
    idle(async_model)
    assert [asyncio.run(async_model.chat(QUESTION)) for _ in range(3)] == [expected] * 3


def test_death_and_restart(async_model: Any) -> None:
    (process,) = async_model._engine._engine.engine_core.resources.engine_manager.processes

    async def die() -> None:
        stream = async_model.stream_chat(QUESTION, max_new_tokens=3000, ignore_eos=True)
        await anext(stream)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match=r"is dead.*restart\(\)") as caught:
            async for _ in stream:
                pass
        assert caught.value.__cause__ is not None
        with pytest.raises(EngineError, match=r"is dead.*restart\(\)"):
            await async_model.chat(QUESTION)
        await async_model.restart()
        assert "Paris" in await async_model.chat(QUESTION)

    asyncio.run(die())


def test_a_closed_model_leaves_nothing_behind(async_model: Any) -> None:
    shared = set(SHARED_MEMORY.iterdir())

    async def main() -> None:
        running = [asyncio.ensure_future(async_model.chat(QUESTION, max_new_tokens=3000, ignore_eos=True)) for _ in range(4)]
        while async_model._engine.running < 4:  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0.05)
        await async_model.close()
        for each in await asyncio.gather(*running, return_exceptions=True):
            assert isinstance(each, EngineError)
            assert "was closed" in str(each)

    asyncio.run(main())
    assert _left_of(psutil.Process()) == []
    names = {thread.name.partition("_")[0] for thread in threading.enumerate()}
    assert names <= {"MainThread", "lagent-blocking", "tqdm", "lagent-loop-0", "lagent-loop-1"}, "threads of the engine go on"
    assert set(SHARED_MEMORY.iterdir()) <= shared


END = """
import asyncio, sys
from lagent_vllm import AsyncVllmModel

def main():
    model = AsyncVllmModel(sys.argv[1], vllm_cfg=eval(sys.argv[2]), load="now")
    print(asyncio.run(model.chat([{"role": "user", "content": "Hello"}])))
    raise RuntimeError("a program that fails")

if __name__ == "__main__":
    main()
"""


def test_a_program_that_ends_in_an_error_takes_its_engine_along(tmp_path: Path) -> None:
    shared = set(SHARED_MEMORY.iterdir())
    program = tmp_path / "program.py"
    program.write_text(END, encoding="utf-8")
    started = subprocess.Popen(
        [sys.executable, str(program), PATH, repr(SMALL)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    watched = psutil.Process(started.pid)
    children: set[psutil.Process] = set()
    while started.poll() is None:
        try:
            children |= set(watched.children(recursive=True))
        except psutil.NoSuchProcess:
            break
        time.sleep(0.2)
    output = started.communicate()[0]
    assert started.returncode == 1, output
    assert "RuntimeError: a program that fails" in output
    assert children, "the engine had no process"
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert set(SHARED_MEMORY.iterdir()) <= shared


def _left_of(process: psutil.Process) -> list[list[str]]:
    """The processes that ``process`` has, but for the one by which Python keeps track of shared memory until the end."""
    return [line for child in process.children(recursive=True) if "resource_tracker" not in " ".join(line := child.cmdline())]
