from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lagent_openai import GPTAPI, AsyncGPTAPI

from .faulty_server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def make(server: Server) -> Iterator[Any]:
    """Makes synchronous models that talk to the server."""
    made = []

    def make(**options: Any) -> GPTAPI:
        made.append(GPTAPI("m", **{"api_base": server.url, "key": "sk-secret-key-of-the-test", "retry": 0, **options}))
        return made[-1]

    yield make
    for model in made:
        model.close()


@pytest.fixture
async def amake(server: Server) -> Any:
    """Makes asynchronous models that talk to the server."""
    made = []

    def make(**options: Any) -> AsyncGPTAPI:
        made.append(AsyncGPTAPI("m", **{"api_base": server.url, "key": "sk-secret-key-of-the-test", "retry": 0, **options}))
        return made[-1]

    yield make
    for model in made:
        await model.close()
