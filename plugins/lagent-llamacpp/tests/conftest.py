"""The default model, fetched once into the user's cache and loaded once."""

from collections.abc import Iterator

import pytest

from lagent_llamacpp import AsyncLlamaCppModel, LlamaCppModel


@pytest.fixture(scope="session")
def llm() -> Iterator[LlamaCppModel]:
    model = LlamaCppModel(temperature=0.0, max_new_tokens=32, n_ctx=1024)
    yield model
    model.close()


@pytest.fixture(scope="session")
def async_llm() -> Iterator[AsyncLlamaCppModel]:
    model = AsyncLlamaCppModel(temperature=0.0, max_new_tokens=32, n_ctx=1024)
    yield model
    model.close()
