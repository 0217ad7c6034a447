"""What the tests of real servers have in common: one small model, which needs to be shown what is meant."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any, ClassVar

import attrs
import pytest

from lagent.errors import AuthenticationError
from lagent.testing.kit import value_of
from lagent_engines.testing import SmallModelKit

KEY = "the-right-key"


def get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


class SmallModelTests(SmallModelKit):
    """Goes before a conformance kit. A fixture ``url`` gives the server's base URL.

    Attributes:
        kind: the class to test.
        lacking: capabilities that this server, or this model, does not have.
    """

    kind: ClassVar[Any]
    lacking: ClassVar[tuple[str, ...]] = ("images",)

    def make(self, url: str, **options: Any) -> Any:
        model = self.kind(**{"model_type": "m", "api_base": url, "key": KEY, "retry": 0, **options})
        model.capabilities = attrs.evolve(model.capabilities, **dict.fromkeys(self.lacking, False))
        model.url = url
        return model

    @pytest.fixture
    def model(self, url: str) -> Iterator[Any]:
        model = self.make(url)
        yield model
        value_of(model.close)

    @pytest.fixture
    def failing_model(self, url: str) -> Iterator[Any]:
        model = self.make(url, key="a-wrong-key")
        yield model
        value_of(model.close)

    # Beyond the kit

    def test_wrong_key(self, failing_model: Any) -> None:
        with pytest.raises(AuthenticationError):
            self.chat(failing_model, [{"role": "user", "content": "Hello"}])

    def test_cached_tokens(self, model: Any) -> None:
        first = [{"role": "system", "content": "Answer questions about numbers. " * 40}, {"role": "user", "content": "1 + 1?"}]
        self.chat(model, first)
        second = [*first, {"role": "assistant", "content": "2"}, {"role": "user", "content": "2 + 2?"}]
        assert self.chat(model, second).usage.cached_tokens >= 128
