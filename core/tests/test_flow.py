"""One flow, four drivers."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest

from lagent.flow import END, Call, Gather, Sleep, Stream, StreamClosed, arun, astream, current_session, invoke, run, stream
from lagent.threads import Mailbox


def steps(log: list[Any]) -> Any:
    """Emits, calls, and cleans up with a call."""
    try:
        yield "first"
        log.append((yield Call(len, ("abc",))))
        yield "second"
        return "last"
    except BaseException as error:
        log.append(type(error))
        raise
    finally:
        log.append((yield Call(str.upper, ("cleaned",))))
        yield "emitted while cleaning up"


async def atake(flow: Any) -> list[Any]:
    return [item async for item in astream(flow)]


def test_drivers_agree() -> None:
    logs: list[list[Any]] = [[], [], [], []]
    assert run(steps(logs[0])) == "last"
    assert asyncio.run(arun(steps(logs[1]))) == "last"
    expected = ["first", "second", "emitted while cleaning up", "last"]
    assert list(stream(steps(logs[2]))) == expected
    assert asyncio.run(atake(steps(logs[3]))) == expected
    assert logs == [[3, "CLEANED"]] * 4


def test_closing_runs_the_clean_up() -> None:
    log: list[Any] = []
    items = stream(steps(log))
    next(items)
    items.close()
    assert log == [StreamClosed, "CLEANED"]

    async def main() -> None:
        aitems = astream(steps(log))
        await anext(aitems)
        await aitems.aclose()  # type: ignore[attr-defined]

    log.clear()
    asyncio.run(main())
    assert log == [StreamClosed, "CLEANED"]


def test_closing_something_that_goes_on_to_the_end() -> None:
    def stubborn() -> Any:
        try:
            yield 1
        except StreamClosed:
            yield Call(int)
        yield 2
        return 3

    items = stream(stubborn())
    next(items)
    items.close()

    async def main() -> None:
        aitems = astream(stubborn())
        await anext(aitems)
        await aitems.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


def test_what_the_reader_throws_reaches_the_flow() -> None:
    log: list[Any] = []
    items: Any = stream(steps(log))
    next(items)
    assert items.throw(ZeroDivisionError()) == "emitted while cleaning up"
    with pytest.raises(ZeroDivisionError):
        next(items)
    assert log == [ZeroDivisionError, "CLEANED"]


def test_a_result_that_was_just_emitted_is_not_emitted_again() -> None:
    def twice() -> Any:
        message = object()
        yield message
        return message

    assert len(list(stream(twice()))) == 1
    assert len(asyncio.run(atake(twice()))) == 1


def one(step: Any) -> Any:
    return (yield step)


class TestCalls:
    def test_futures_and_awaitables_in_a_plain_driver(self) -> None:
        future: Future[int] = Future()
        threading.Timer(0.01, future.set_result, [5]).start()
        assert run(one(Call(lambda: future))) == 5

        async def slow() -> int:
            await asyncio.sleep(0.01)
            return 6

        assert run(one(Call(slow))) == 6
        with pytest.raises(asyncio.TimeoutError):
            run(one(Call(asyncio.wait_for, (asyncio.sleep(1), 0.01))))

    async def test_futures_and_threads_in_an_asynchronous_driver(self) -> None:
        future: Future[int] = Future()
        threading.Timer(0.01, future.set_result, [5]).start()
        assert await arun(one(Call(lambda: future))) == 5
        assert await arun(one(Call(threading.get_ident, blocking=True))) != threading.get_ident()
        assert await arun(one(Call(threading.get_ident))) == threading.get_ident()

        async def where() -> int:
            return threading.get_ident()

        assert await arun(one(Call(where, blocking=True))) == threading.get_ident()

    async def test_the_session_is_known_inside(self) -> None:
        async def asked() -> Any:
            await asyncio.sleep(0)
            return current_session.get()

        for function in (current_session.get, asked):
            for blocking in (True, False):
                assert await arun(one(Call(function, session_id="s", blocking=blocking))) == "s"
        assert await asyncio.to_thread(run, one(Call(asked, session_id="s"))) == "s"
        assert current_session.get() is None

    def test_interrupted_waiting_cancels_what_was_waited_for(self) -> None:
        cancelled = threading.Event()

        async def endless() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        threading.Timer(0.2, signal.pthread_kill, [threading.get_ident(), signal.SIGINT]).start()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a program started in the background ignores it
        try:
            with pytest.raises(KeyboardInterrupt):
                run(one(Call(endless)))
        finally:
            signal.signal(signal.SIGINT, before)
        assert cancelled.wait(5)


class TestGather:
    def test_results_in_order_and_side_by_side(self) -> None:
        barrier = threading.Barrier(3)

        def flow(i: int) -> Any:
            yield "dropped"
            yield Call(barrier.wait, (5,), blocking=True)
            return i

        assert run(one(Gather([flow(i) for i in range(3)]))) == [0, 1, 2]
        assert asyncio.run(arun(one(Gather([flow(i) for i in range(3)])))) == [0, 1, 2]
        assert run(one(Gather([]))) == asyncio.run(arun(one(Gather([])))) == []

    def test_the_first_error_is_raised_when_all_have_ended(self) -> None:
        ended: list[int] = []

        def flow(i: int) -> Any:
            yield Sleep(0.01 * i)
            ended.append(i)
            if i < 2:
                raise ValueError(i)

        for driver in (run, lambda f: asyncio.run(arun(f))):
            ended.clear()
            with pytest.raises(ValueError, match="0"):
                driver(one(Gather([flow(i) for i in range(3)])))
            assert sorted(ended) == [0, 1, 2]

    async def test_cancelling_cancels_all(self) -> None:
        ended: list[Any] = []

        def flow() -> Any:
            try:
                yield Sleep(60)
            except BaseException as error:
                ended.append(type(error))
                raise

        task = asyncio.ensure_future(arun(one(Gather([flow(), flow()]))))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [asyncio.CancelledError] * 2


class TestStreams:
    def test_sources_of_both_colours(self) -> None:
        async def agenerator() -> Any:
            yield 1
            yield 2

        class Bare:
            def __init__(self) -> None:
                self.left = [2, 1]

            def __next__(self) -> int:
                if not self.left:
                    raise StopIteration
                return self.left.pop()

        class AsyncBare(Bare):
            async def __anext__(self) -> int:
                if not self.left:
                    raise StopAsyncIteration
                return self.left.pop()

        def read(source: Any, blocking: bool) -> Any:
            items = Stream(source, blocking=blocking)
            got = []
            while (item := (yield items.next())) is not END:
                got.append(item)
            yield items.close()
            return got

        for make in (lambda: iter([1, 2]), agenerator, Bare, AsyncBare):
            assert Stream.accepts(make())
            for blocking in (True, False):
                assert run(read(make(), blocking)) == [1, 2]
                assert asyncio.run(arun(read(make(), blocking))) == [1, 2]
        assert not Stream.accepts("text")

    async def test_a_cancelled_read_in_a_thread_is_waited_for_before_closing(self) -> None:
        events: list[str] = []

        def slow() -> Any:
            try:
                time.sleep(0.05)
                events.append("woke")
                yield 1
            finally:
                events.append("closed")

        def read() -> Any:
            items = Stream(slow(), blocking=True)
            try:
                yield items.next()
            finally:
                yield items.close()

        task = asyncio.ensure_future(arun(read()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert events == ["woke", "closed"]


def test_invoke_hands_on_streams_and_gives_the_last_item() -> None:
    def generator(n: int, session_id: Any) -> Any:
        yield from range(n)

    async def agenerator(n: int, session_id: Any) -> Any:
        for i in range(n):
            yield i

    def each(item: int) -> Any:
        yield Call(int)
        return item * 10

    for function in (generator, agenerator):
        assert list(stream(invoke(function, 3, blocking=True, session_id="s"))) == [0, 1, 2]
        assert asyncio.run(atake(invoke(function, 3, blocking=True, session_id="s", each=each))) == [0, 10, 20]
        assert run(invoke(function, 0, blocking=False, session_id="s")) is None
    assert run(invoke(lambda session_id: session_id, blocking=False, session_id="s")) == "s"


# Mailbox -------------------------------------------------------------------------------------------------------------


def test_a_mailbox_hands_over_in_order_whoever_is_first() -> None:
    box = Mailbox()
    box.put(1)
    box.put(2)
    assert [box.take().result(), box.take().result()] == [1, 2]
    later = box.take()
    assert not later.done()
    threading.Thread(target=box.put, args=(3,)).start()
    assert later.result(20) == 3
    box.fail(ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        box.take().result()


def test_a_reader_of_a_mailbox_who_left_takes_nothing() -> None:
    box = Mailbox()
    assert box.take().cancel()
    box.put(1)
    assert box.take().result() == 1


async def test_a_mailbox_is_read_from_a_flow_of_either_colour() -> None:
    box = Mailbox()

    def reading() -> Any:
        return ((yield Call(box.take)), (yield Call(box.take)))

    threading.Timer(0.05, lambda: [box.put(1), box.put(2)]).start()
    assert await arun(reading()) == (1, 2)
    box.put(3)
    box.put(4)
    assert run(reading()) == (3, 4)
    box.put(5)
    box.put(6)
    assert await arun(reading()) == (5, 6), "what is there already"
