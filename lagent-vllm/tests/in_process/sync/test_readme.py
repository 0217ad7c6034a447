"""The code of the README, with the small model and settings for this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ..conftest import PATH, SMALL

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


def test_the_code_of_the_readme(alone: None, capsys: pytest.CaptureFixture[str]) -> None:
    by_name, without_gpu, by_class = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    scope: dict[str, Any] = {"__name__": "__main__", "SMALL": SMALL}
    exec(by_name.replace('"Qwen/Qwen3-8B"', f'{PATH!r}, "vllm_cfg": SMALL, "max_new_tokens": 16'), scope)
    assert capsys.readouterr().out.strip()
    scope["agent"].llm.close()
    exec(without_gpu, scope)
    by_class = by_class.replace('"Qwen/Qwen3-8B"', repr(PATH)).replace("1024", "16")
    settings = '{"max_model_len": 8192, "gpu_memory_utilization": 0.85}'
    assert settings in by_class
    exec(by_class.replace(settings, "{**SMALL, **vllm_cfg, 'max_model_len': 8192}"), scope)
