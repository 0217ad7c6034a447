"""What lagent-vllm costs on top of bare ``AsyncLLM``, with 64 sessions at once.

    LAGENT_VLLM_PYTHON=… python bench/vllm_sessions.py

Both sides send the same prompts to the same engine, in rounds that alternate so that both meet the same machine, each with an empty prefix
cache: ``AsyncVllmModel`` renders and tokenises a conversation of its own for every session; bare ``AsyncLLM`` gets the tokens that come of it. Answers
come whole in one measurement and token by token in another. Exits with 1 if lagent reaches less than 95 % of the bare throughput in either, or
if a session got another answer than when it was asked alone.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from engine import enter

SESSIONS, ROUNDS, TOKENS = 64, 4, 32
LEAST = 0.95
ENGINE = {
    "dtype": "float32",  # rounded to 16 bits, greedy answers depend on how many run at once
    "max_model_len": 2048,
    "kv_cache_memory_bytes": 2**30,
    "enforce_eager": True,
}
SAMPLING = {"temperature": 0.0, "top_p": None, "top_k": None, "max_new_tokens": TOKENS, "ignore_eos": True}


def conversation(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Write a sentence about the number {number}, please."}]


def main() -> int:
    path = enter("vllm")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from lagent_vllm import AsyncVllmModel

    model = AsyncVllmModel(path, vllm_cfg=ENGINE, load="now", **SAMPLING)
    alone = asyncio.run(one_by_one(model))
    prompts = [answer.extra["prompt_token_ids"] for answer in alone]
    parts = []
    for name, streamed in (("whole", False), ("streamed", True)):
        sides = {
            "lagent": lambda streamed=streamed: asyncio.run(lagent(model, streamed)),
            "bare": lambda streamed=streamed: on_its_loop(model, bare(model, prompts, streamed)),
        }
        best, cpu = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, float("inf"))
        for _ in range(ROUNDS):
            for side, run in sides.items():
                on_its_loop(model, model._engine._engine.reset_prefix_cache())
                start, used = time.perf_counter(), time.process_time()
                answers = run()
                cpu[side] = min(cpu[side], time.process_time() - used)
                best[side] = max(best[side], SESSIONS * TOKENS / (time.perf_counter() - start))
                if wrong := sum(answer != str(expected) for answer, expected in zip(answers, alone, strict=True)):
                    print(f"{wrong} of {SESSIONS} answers of {side} ({name}) are not those that were given one by one")
                    parts.append(0.0)
        parts.append(best["lagent"] / best["bare"])
        print(f"{name}: lagent {best['lagent']:.0f} tokens/s, bare {best['bare']:.0f} tokens/s: {parts[-1]:.1%}")
        each = {side: 1e6 * seconds / (SESSIONS * TOKENS) for side, seconds in cpu.items()}
        print(
            f"  processor time beside the engine's process: lagent {each['lagent']:.0f} µs, bare {each['bare']:.0f} µs for a token"
        )
    asyncio.run(model.close())
    print(f"at least {LEAST:.0%} is wanted, and every answer as it was one by one")
    return 0 if min(parts) >= LEAST else 1


async def one_by_one(model: Any) -> list[Any]:
    return [await model.chat(conversation(number), return_token_ids=True) for number in range(SESSIONS)]


async def lagent(model: Any, streamed: bool) -> list[str]:
    async def one(number: int) -> str:
        if streamed:
            return "".join([chunk.content async for chunk in model.stream_chat(conversation(number), number)])
        return str(await model.chat(conversation(number), number))

    return await _all(one)


async def bare(model: Any, prompts: list[list[int]], streamed: bool) -> list[str]:
    from vllm import SamplingParams
    from vllm.inputs import tokens_input
    from vllm.sampling_params import RequestOutputKind

    kind = RequestOutputKind.DELTA if streamed else RequestOutputKind.FINAL_ONLY
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, output_kind=kind)
    engine = model._engine._engine

    async def one(number: int) -> str:
        outputs = engine.generate(tokens_input(prompts[number]), params, f"bare-{time.perf_counter()}-{number}")
        return "".join([output.outputs[0].text async for output in outputs])

    return await _all(one)


async def _all(one: Callable[[int], Awaitable[str]]) -> list[str]:
    return await asyncio.gather(*map(one, range(SESSIONS)))


def on_its_loop(model: Any, coroutine: Any) -> Any:
    """Run ``coroutine`` on the event loop that ``AsyncLLM`` belongs to."""
    return model._engine._bridge.run(coroutine)


if __name__ == "__main__":
    sys.exit(main())
