"""The models under test: one engine for each colour, which all tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lagent.testing.kit import value_of

BACKEND = os.environ["LAGENT_LMDEPLOY_BACKEND"]
PATH = os.environ["LAGENT_LMDEPLOY_MODEL"]

if BACKEND == "shim":  # before LMDeploy is imported
    sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "engines" / "lmdeploy_cpu"))
    import lmdeploy_cpu
    import lora_cpu

    lmdeploy_cpu.install()
    lora_cpu.install()

from lagent_lmdeploy import AsyncLMDeployPipeline, LMDeployPipeline  # noqa: E402

CACHE_BLOCK = {"turbomind": "cache_block_seq_len"}.get(BACKEND, "block_size")
"""The option for how many tokens a block of the cache holds; only whole blocks are found again."""


def make_alone(kind: Any = LMDeployPipeline, *, path: str = PATH, pipeline_cfg: Any = None, **options: Any) -> Any:
    """A model of either class, small enough for the CPU."""
    small = {"session_len": 2048, "max_batch_size": 16, CACHE_BLOCK: 32, "max_prefill_token_num": 2048}
    backend = "turbomind" if BACKEND == "turbomind" else "pytorch"
    options = {"backend": backend, "max_new_tokens": 16, "temperature": 0.0, **options}
    return kind(path, pipeline_cfg={**small, **(pipeline_cfg or {})}, **options)


@pytest.fixture(scope="session")
def make() -> Iterator[Callable[..., Any]]:
    """:func:`make_alone`, but closes the models in the end."""
    made = []

    def make(*args: Any, **options: Any) -> Any:
        made.append(make_alone(*args, **options))
        return made[-1]

    yield make
    for model in made:
        value_of(model.close)


@pytest.fixture(scope="session")
def pipeline(make: Callable[..., Any]) -> Any:
    return make()


@pytest.fixture(scope="session")
def async_pipeline(make: Callable[..., Any]) -> Any:
    return make(AsyncLMDeployPipeline)
