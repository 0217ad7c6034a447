"""What the conformance kits have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from lagent import flow
from lagent.flow import END, Call, Stream

__all__ = ["Kit", "check_linear", "items", "overrides_kit", "value_of"]

F = TypeVar("F", bound=Callable[..., Any])


def overrides_kit(reason: str) -> Callable[[F], F]:
    """Allow a test to take the place of the kit's test of the same name.

    Args:
        reason: why the kit's own test cannot hold for this component.

    Raises:
        ValueError: the reason is empty.
    """
    if not reason.strip():
        raise ValueError("overrides_kit needs a reason: say why the kit's own test cannot hold for this component")

    def mark(test: F) -> F:
        test.__overrides_kit__ = reason  # type: ignore[attr-defined]
        return test

    return mark


class Kit:
    """Base of the kits. A subclass may add tests, and replace the kit's only with :func:`overrides_kit`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith(f"{__package__}."):
            return
        for name, value in vars(cls).items():
            kit = next((base for base in cls.__mro__[1:] if name.startswith("test") and name in vars(base)), None)
            if kit is not None and not hasattr(value, "__overrides_kit__"):
                raise TypeError(
                    f"{cls.__name__}.{name} replaces a test of {kit.__name__}: give it another name, or say why with "
                    '@overrides_kit("reason")'
                )

    def skip_unless(self, condition: Any, reason: str) -> None:
        """Leave the test out, visibly, unless ``condition`` holds."""
        if not condition:
            pytest.skip(reason)


def value_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What ``function`` returns, asynchronous or not."""
    return Call(function, args, kwargs).run()


def items(source: Any) -> Iterator[Any]:
    """The items of an iterator, asynchronous or not; closing it closes ``source``."""

    def steps() -> Any:
        stream, item = Stream(source), END
        try:
            while (following := (yield stream.next())) is not END:
                item = following
                yield item
        finally:
            yield stream.close()
        return item

    return flow.stream(steps())


def check_linear(work: Callable[[int], Callable[[], Any]], what: str, *, size: int = 1_000, largest: int = 64_000) -> None:
    """Fail if ``work`` costs more than linear time.

    Four times the work may take up to nine times the processor time of this thread; quadratic work takes sixteen.

    Args:
        work: gives, for a size, the function to measure.
        what: names the work in the message.
        size: the size to begin with; it grows until the work takes long enough to be measured.
        largest: the largest size worth testing.

    Raises:
        AssertionError: it grew faster in each of four comparisons, the last of which take the least of several times.
    """
    while 4 * size < largest and _seconds(work(size)) < 0.002:
        size *= 2
    growth = []
    for tries in (1, 2, 4, 8):
        small, large = (min(_seconds(work(n)) for _ in range(tries)) for n in (size, 4 * size))
        growth.append(large / max(small, 1e-4))
        if growth[-1] <= 9:
            return
    raise AssertionError(
        f"{what} takes {min(growth):.0f} times as long for {4 * size} as for {size} characters: the cost has to be linear"
    )


def _seconds(function: Callable[[], Any]) -> float:
    start = time.thread_time()
    function()
    return time.thread_time() - start
