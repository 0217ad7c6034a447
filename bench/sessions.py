"""Many users at once: throughput beside the bare model, and what an idle session holds.

    python bench/sessions.py

1,000 sessions call one asynchronous agent at the same time, with a model that takes a second; beside it, the same model called bare under
``asyncio.gather``. Then 10,000 sessions have had a turn and are idle: what they hold beyond their messages. Exits with 1 if the agent
reaches less than 90 % of the bare throughput, or an idle session holds more than 2 KB.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from typing import Any

from lagent.agents import Agent, AsyncAgent
from lagent.llms import AsyncBaseLLM, BaseLLM
from lagent.schema import AgentMessage

CONCURRENT, IDLE, ROUNDS = 1_000, 10_000, 3


class Slow(AsyncBaseLLM):
    async def _complete(self, request: Any) -> str:
        await asyncio.sleep(1)
        return "Good morning."


class Quick(BaseLLM):
    def _complete(self, request: Any) -> str:
        return "Good morning."


async def throughput() -> float:
    """The agent's calls a second as a part of the bare model's, the best of some rounds for each."""
    model, best = Slow(), {"bare": 0.0, "agent": 0.0}
    prompt = [{"role": "user", "content": "Hello"}]
    for _ in range(ROUNDS):
        for name in best:
            agent = AsyncAgent(model)
            start = time.perf_counter()
            if name == "bare":
                await asyncio.gather(*(model.chat(prompt) for _ in range(CONCURRENT)))
            else:
                await asyncio.gather(*(agent("Hello", session_id=f"user-{i}") for i in range(CONCURRENT)))
            best[name] = max(best[name], CONCURRENT / (time.perf_counter() - start))
    print(f"{CONCURRENT} sessions at once: {best['agent']:.0f} calls/s, the bare model {best['bare']:.0f} calls/s")
    return best["agent"] / best["bare"]


def held() -> float:
    """Bytes that an idle session holds beyond its messages and its id."""
    agent, kept = Agent(Quick()), []
    agent("Hello", session_id="warm")
    gc.collect()
    tracemalloc.start()
    for i in range(IDLE):
        kept.append([AgentMessage("Hello"), AgentMessage("Good morning.", sender="Agent"), f"user-{i}"])
    gc.collect()
    messages, _ = tracemalloc.get_traced_memory()
    for i in range(IDLE):
        agent("Hello", session_id=f"user-{i}")
    gc.collect()
    both, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (both - 2 * messages) / IDLE


def main() -> int:
    part, size = asyncio.run(throughput()), held()
    print(f"which is {part:.1%} of it, at least 90 % is wanted")
    print(f"an idle session holds {size:,.0f} bytes beyond its messages, at most 2,048 are wanted")
    return 0 if part >= 0.9 and size <= 2048 else 1


if __name__ == "__main__":
    sys.exit(main())
