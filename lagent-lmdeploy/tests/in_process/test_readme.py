"""The README's code for models in this process."""

from __future__ import annotations

import contextlib
import io

import pytest

from .. import readme
from .conftest import BACKEND, CACHE_BLOCK, PATH

BACKEND_NAME = "turbomind" if BACKEND == "turbomind" else "pytorch"
SMALL = f'{{"session_len": 2048, "{CACHE_BLOCK}": 32, "max_batch_size": 4, "max_prefill_token_num": 2048}}'


@pytest.mark.parametrize("number", [0, 1])
def test_blocks(number: int) -> None:
    block = readme.blocks()[number].replace("Qwen/Qwen3-8B", PATH)
    block = block.replace('"path": ', f'"backend": "{BACKEND_NAME}", "max_new_tokens": 8, "pipeline_cfg": {SMALL}, "path": ')
    block = block.replace('"turbomind"', f'"{BACKEND_NAME}"').replace("max_new_tokens=1024", "max_new_tokens=8")
    block = block.replace('{"session_len": 8192, "cache_max_entry_count": 0.8}', SMALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, {})
    assert bool(printed.getvalue().strip()) == ("print(" in block)
