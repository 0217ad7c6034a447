"""The four variants of agents, behind one way to call them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from lagent import agents
from lagent_echo import AsyncEchoModel, EchoModel


@frozen
class Variant:
    """One of the four variants.

    Attributes:
        name: ``""``, ``"Async"``, ``"Streaming"`` or ``"AsyncStreaming"``, the prefix of the classes.
        model: a scripted model of the variant's colour.
    """

    name: str
    model: Any

    @property
    def asynchronous(self) -> bool:
        return self.name.startswith("Async")

    @property
    def streaming(self) -> bool:
        return self.name.endswith("Streaming")

    def cls(self, base: str) -> Any:
        """The variant of ``Agent``, ``Sequential`` or ``ToolAgent``."""
        return getattr(agents, self.name + base)

    def mixed(self, cls: type) -> Any:
        """A subclass of ``cls``, an :class:`Agent`, in this variant."""
        return type(cls.__name__, (getattr(agents, f"{self.name}AgentMixin"), cls), {}) if self.name else cls

    def call(self, agent: Any, *message: Any, **kwargs: Any) -> Any:
        """Call an agent of this variant and give its answer."""
        return self.emitted(agent, *message, **kwargs)[-1]

    def emitted(self, agent: Any, *message: Any, **kwargs: Any) -> list[Any]:
        """Call an agent of this variant and give everything it yields, or the answer alone if it does not stream."""
        if self.asynchronous:
            return asyncio.run(self.aemitted(agent, *message, **kwargs))
        result = agent(*message, **kwargs)
        return list(result) if self.streaming else [result]

    async def aemitted(self, agent: Any, *message: Any, **kwargs: Any) -> list[Any]:
        result = agent(*message, **kwargs)
        return [item async for item in result] if self.streaming else [await result]


VARIANTS = [
    Variant("", EchoModel),
    Variant("Async", AsyncEchoModel),
    Variant("Streaming", EchoModel),
    Variant("AsyncStreaming", AsyncEchoModel),
]


@pytest.fixture(params=VARIANTS, ids=lambda variant: variant.name or "Plain")
def variant(request: pytest.FixtureRequest) -> Variant:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def variants() -> list[Variant]:
    return VARIANTS


Run = Callable[..., Any]
