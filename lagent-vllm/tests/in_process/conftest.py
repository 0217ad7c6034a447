"""The models under test: one engine for each colour, which all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lagent.testing.kit import value_of

PATH = os.environ["LAGENT_VLLM_MODEL"]
CPU = os.environ["LAGENT_VLLM_DEVICE"] == "cpu"
BLOCK = 32
"""How many tokens a block of the cache holds; only whole blocks are found again."""
SMALL: dict[str, Any] = {
    "max_model_len": 4096,
    "block_size": BLOCK,
    "kv_cache_memory_bytes": 2**29,
    # Small models lose themselves in the white space that JSON allows.
    "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    # Rounded to 16 bits, greedy answers depend on how many run at once.
    **({"dtype": "float32", "enforce_eager": True, "distributed_executor_backend": "uni"} if CPU else {}),
}


@pytest.fixture(scope="session")
def make() -> Iterator[Callable[..., Any]]:
    """Makes models of a class, small enough for the CPU, and closes them in the end."""
    made = []

    def make(kind: Any, *, vllm_cfg: Any = None, **options: Any) -> Any:
        options = {"max_new_tokens": 16, "temperature": 0.0, "top_k": None, "top_p": None, **options}
        made.append(kind(PATH, vllm_cfg={**SMALL, **(vllm_cfg or {})}, **options))
        return made[-1]

    yield make
    for model in made:
        value_of(model.close)
