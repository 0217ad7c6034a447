"""Images, with a tiny model of random weights that is made on the spot: it says nothing sensible, but other things of other images."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lagent.agents import Agent
from lagent.errors import ModelConfigurationError
from lagent_vllm import VllmModel

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def make_model(folder: Path) -> None:
    """An Idefics3 with two layers of each kind."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3Processor,
        LlamaConfig,
        PreTrainedTokenizerFast,
    )
    from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<fake_token_around_image>", "<global-img>"]
    special += ["<end_of_utterance>", *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(["hello world, the quick brown fox"], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )
    torch.manual_seed(0)
    size: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = Idefics3VisionConfig(**size, image_size=28, patch_size=7)
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    text = LlamaConfig(**size, **tokens, vocab_size=len(tokenizer), num_key_value_heads=1, max_position_embeddings=2048)
    config = Idefics3Config(
        vision_config=vision.to_dict(),
        text_config=text.to_dict(),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    Idefics3ForConditionalGeneration(config).save_pretrained(folder)
    edge = {"longest_edge": 28}
    images = Idefics3ImageProcessorPil(size=edge, max_image_size=edge, do_image_splitting=False)
    processor = Idefics3Processor(image_processor=images, tokenizer=tokenizer, image_seq_len=4, chat_template=TEMPLATE)
    processor.save_pretrained(folder)


@pytest.fixture(scope="module")
def model(sync_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sync_model.close()
    folder = tmp_path_factory.mktemp("seeing")
    make_model(folder)
    settings = {"dtype": "float32", "enforce_eager": True, "max_model_len": 512, "block_size": 32, "kv_cache_memory_bytes": 2**27}
    model = VllmModel(str(folder), vllm_cfg={**settings, "limit_mm_per_prompt": {"image": 2}}, temperature=0.0, max_new_tokens=12)
    yield model
    model.close()


def image(colour: str) -> dict[str, Any]:
    from PIL import Image

    written = io.BytesIO()
    Image.new("RGB", (28, 28), colour).save(written, "png")
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()}}


def ask(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "Which colour is this?"}, *parts]}]


def test_the_model_sees_what_it_is_shown(model: Any) -> None:
    assert model.capabilities.images
    red, blue, again = (model.chat(ask(image(colour)), ignore_eos=True) for colour in ("red", "blue", "red"))
    assert red != blue
    assert red == again
    assert again.usage.cached_tokens == 32
    assert red.usage.prompt_tokens > model.chat(ask(), ignore_eos=True).usage.prompt_tokens


def test_earlier_images_stay_in_the_conversation(model: Any) -> None:
    agent = Agent(model)
    parts = ask(image("red"))[0]["content"]
    agent(parts, ignore_eos=True)
    second = agent("And now?", ignore_eos=True)
    assert second.extra_info["usage"]["cached_tokens"] >= 32
    assert "history_rewritten" not in second.extra_info
    third = agent(ask(image("blue"))[0]["content"], ignore_eos=True)
    assert third.extra_info["usage"]["cached_tokens"] >= 64


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], "cannot be loaded"),
        ([{"type": "image", "image": "x.png"}], "an image has the form"),
        ([image("red")] * 3, "refuses the request"),
    ],
)
def test_images_that_cannot_be_taken(model: Any, parts: list[Any], message: str) -> None:
    with pytest.raises(ModelConfigurationError, match=message):
        model.chat(ask(*parts))
