"""What lives on one event loop is used from threads and other loops, and ends when its reader goes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from lagent import flow
from lagent.errors import EngineError
from lagent.flow import END
from lagent_engines import Bridge


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    bridge = Bridge()
    yield bridge
    bridge.close()


class Source:
    """Counts up until it is closed."""

    def __init__(self, count: int = 10**9, error: BaseException | None = None) -> None:
        self.count, self.error = count, error
        self.started = self.cleaned = False
        self.thread: threading.Thread | None = None

    async def __call__(self) -> AsyncGenerator[int, None]:
        self.started, self.thread = True, threading.current_thread()
        try:
            for number in range(self.count):
                yield number
                await asyncio.sleep(0)
            if self.error is not None:
                raise self.error
        finally:
            await asyncio.sleep(0.02)
            self.cleaned = True


def reading(bridge: Bridge, source: Source) -> flow.Flow[int]:
    stream = bridge.stream(source)
    last = -1
    try:
        while (item := (yield stream.next())) is not END:
            last = item
            yield item
    finally:
        yield stream.close()
        assert source.cleaned or not source.started, "the reader went on before the source had cleaned up"
    return last


def test_from_a_thread(bridge: Bridge) -> None:
    source = Source(5)
    assert list(flow.stream(reading(bridge, source))) == [0, 1, 2, 3, 4]
    assert source.thread is not threading.current_thread()


def test_from_several_event_loops_at_once_and_one_after_another(bridge: Bridge) -> None:
    async def read() -> list[int]:
        return [item async for item in flow.astream(reading(bridge, Source(20)))]

    async def many() -> list[list[int]]:
        return await asyncio.gather(*(read() for _ in range(5)))

    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(many()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[list(range(20))] * 5] * 3
    assert asyncio.run(read()) == list(range(20))


def test_a_source_runs_from_the_start_on(bridge: Bridge) -> None:
    source = Source(3)
    stream = bridge.stream(source)
    deadline = time.monotonic() + 20
    while not source.cleaned:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [stream.next().run() for _ in range(4)] == [0, 1, 2, END]


def test_closing_ends_the_source(bridge: Bridge) -> None:
    source = Source()
    items: Any = flow.stream(reading(bridge, source))
    assert next(items) == 0
    items.close()
    assert source.cleaned


async def test_cancelling_the_reader_ends_the_source(bridge: Bridge) -> None:
    sources = [Source() for _ in range(20)]
    tasks = [asyncio.ensure_future(flow.arun(reading(bridge, source))) for source in sources]
    for number, task in enumerate(tasks):
        await asyncio.sleep(0.001 * (number % 3))
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert all(source.cleaned or not source.started for source in sources)


@pytest.mark.parametrize("error", [ValueError("wrong"), EngineError("dead")])
def test_an_error_is_raised_where_the_reader_waits(bridge: Bridge, error: Exception) -> None:
    items = flow.stream(reading(bridge, Source(2, error)))
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(type(error), match=str(error)):
        next(items)


def test_a_bridge_that_is_closed_under_its_readers() -> None:
    bridge = Bridge()
    source = Source()
    stream = bridge.stream(source)
    assert stream.next().run() == 0
    bridge.close()
    bridge.close()
    assert source.cleaned
    with pytest.raises(EngineError, match="the engine was closed while it answered"):
        while True:
            stream.next().run()
    stream.close().run()
    with pytest.raises(EngineError, match="the engine was closed"):
        bridge.stream(source)


def test_another_loop_is_left_running() -> None:
    owner = Bridge()
    guest = Bridge(owner.loop)
    assert list(flow.stream(reading(guest, Source(2)))) == [0, 1]
    guest.close()
    assert owner.loop.is_running()
    owner.close()


async def test_a_source_that_is_faster_than_its_reader_leaves_the_loop_to_others(bridge: Bridge) -> None:
    class Fast(Source):
        async def __call__(self) -> AsyncGenerator[int, None]:
            for number in range(200_000):
                yield number
            ended.set()

    ended = threading.Event()
    stream = bridge.stream(Fast())
    await asyncio.to_thread(ended.wait)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    for _ in range(1000):
        await stream.next().arun()
    task.cancel()
    assert turns >= 500, "the reader has kept the loop to itself"
    await stream.close().arun()
