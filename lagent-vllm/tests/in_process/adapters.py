"""LoRA adapters made on the spot."""

from __future__ import annotations

import json
from pathlib import Path

RANK = 8


def write_adapter(folder: Path, model: str, seed: int) -> str:
    """Write an adapter of random weights for the query projections of a model of the Llama family, in the form of PEFT."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    size = config["hidden_size"]
    out = config["num_attention_heads"] * config.get("head_dim", size // config["num_attention_heads"])
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{name}.lora_A.weight"] = torch.randn(RANK, size, generator=random) / size**0.5
        weights[f"{name}.lora_B.weight"] = torch.randn(out, RANK, generator=random)
    folder.mkdir()
    save_file(weights, str(folder / "adapter_model.safetensors"))
    about = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "target_modules": ["q_proj"],
        "task_type": "CAUSAL_LM",
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(about), encoding="utf-8")
    return str(folder)
