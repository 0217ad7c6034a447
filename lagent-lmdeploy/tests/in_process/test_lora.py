"""LoRA adapters, of which every request may take another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lagent.errors import ModelConfigurationError

from .conftest import BACKEND, PATH

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]

pytestmark = pytest.mark.skipif(BACKEND == "turbomind", reason="turbomind knows no adapters")


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two adapters that change what the model says."""
    folder = tmp_path_factory.mktemp("adapters")
    return {name: str(adapter(folder / name, seed)) for seed, name in enumerate(["one", "two"])}


def adapter(folder: Path, seed: int) -> Path:
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    config = peft.LoraConfig(r=4, lora_alpha=64, target_modules=["q_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(PATH), config)
    torch.manual_seed(seed)
    for name, weight in model.named_parameters():
        if "lora_B" in name:  # zeros in a new adapter
            torch.nn.init.normal_(weight, std=0.05)
    model.save_pretrained(folder)
    return folder


def test_every_request_has_its_own(make: Callable[..., Any], adapters: dict[str, str]) -> None:
    model = make(adapters=adapters)
    choices = [None, "one", "two"]

    def answer(lora: str | None) -> str:
        return model.chat(QUESTION, lora=lora, max_new_tokens=8)

    alone = [answer(lora) for lora in choices]
    assert len(set(alone)) == 3
    with ThreadPoolExecutor(6) as pool:  # in one batch, and with a prefix cache of their own
        assert list(pool.map(answer, choices * 2)) == alone * 2
    with pytest.raises(ModelConfigurationError, match="loaded are 'one', 'two'"):
        model.chat(QUESTION, lora="three")
