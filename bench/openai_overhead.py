"""What an agent and lagent-openai cost on top of the bare ``openai`` client.

    python bench/openai_overhead.py

A local server, in a process of its own, gives every request the same streamed answer. Each side sends 2,000 streamed requests, 64 at a
time, in rounds that alternate so that both meet the same machine: the bare ``AsyncOpenAI`` reading every chunk, and an
``AsyncStreamingAgent`` with an ``AsyncGPTAPI``, each request in a session of its own. Exits with 1 if the agent reaches less than 80 % of the
client's throughput.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any

import openai

from lagent.agents import AsyncStreamingAgent
from lagent_openai import AsyncGPTAPI

REQUESTS, ROUNDS, CONCURRENCY, TOKENS = 2_000, 8, 64, 32
LEAST = 0.8


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    data = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        **more,
    }
    return b"data: " + json.dumps(data).encode() + b"\n\n"


USAGE = {"prompt_tokens": 9, "completion_tokens": TOKENS, "total_tokens": 9 + TOKENS}
EVENTS = [
    chunk({"role": "assistant", "content": ""}),
    *(chunk({"content": f" word{number}"}) for number in range(TOKENS)),
    chunk({}, "stop"),
    chunk({}, choices=[], usage=USAGE),
    b"data: [DONE]\n\n",
]
TEXT = "".join(f" word{number}" for number in range(TOKENS))
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS)
    + b"0\r\n\r\n"
)


class Canned(asyncio.Protocol):
    """Gives the answer once for every request; connections stay open."""

    def connection_made(self, transport: Any) -> None:
        self.transport, self.data = transport, b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while b"\r\n\r\n" in self.data:
            head, _, rest = self.data.partition(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
            if len(rest) < length:
                return
            self.data = rest[length:]
            self.transport.write(ANSWER)


def serve(ready: Connection) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Canned, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def measure(url: str) -> tuple[float, float]:
    """Seconds that the bare client and the agent took for all requests."""
    client = openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0)
    model = AsyncGPTAPI("m", api_base=url, key="x", dialect="openai", retry=0)
    agent = AsyncStreamingAgent(llm=model)
    ask = "Say thirty-two words."

    async def bare(number: int) -> None:
        messages: Any = [{"role": "user", "content": ask}]
        stream = await client.chat.completions.create(
            model="m", messages=messages, max_completion_tokens=512, stream=True, stream_options={"include_usage": True}
        )
        text = ""
        async for piece in stream:
            if piece.choices:
                text += piece.choices[0].delta.content or ""
        assert text == TEXT

    async def through_agent(number: int) -> None:
        async for message in agent(ask, session_id=number):
            last = message
        assert last.content == TEXT
        agent.reset(session_id=number)

    sides = [bare, through_agent]
    seconds = [0.0, 0.0]
    for side in sides:
        await load(side, range(CONCURRENCY))  # warm up
    for turn in range(ROUNDS):
        size = REQUESTS // ROUNDS
        for index, side in enumerate(sides):
            seconds[index] += await load(side, range(turn * size, (turn + 1) * size))
    await client.close()
    await model.close()
    return seconds[0], seconds[1]


async def load(side: Callable[[int], Awaitable[None]], numbers: range) -> float:
    todo = iter(numbers)

    async def worker() -> None:
        for number in todo:
            await side(number)

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    return time.perf_counter() - start


def main() -> int:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    bare, agent = asyncio.run(measure(f"http://127.0.0.1:{ours.recv()}/v1"))
    server.terminate()
    print(f"AsyncOpenAI                        {REQUESTS / bare:7.1f} requests/s")
    print(
        f"AsyncStreamingAgent + AsyncGPTAPI  {REQUESTS / agent:7.1f} requests/s   {bare / agent:.2f} of that, at least {LEAST} is needed"
    )
    return 0 if bare / agent >= LEAST else 1


if __name__ == "__main__":
    raise SystemExit(main())
