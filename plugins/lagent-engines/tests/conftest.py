"""Real tokenizers, trained on the spot, with chat templates in the manner of well-known models."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it says that PyTorch is missing, which tokenizers do not need

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "[/INST]"]
CORPUS = [
    "the quick brown fox jumps over the lazy dog and looks it up once more",
    "user assistant system tool call name arguments look_up question answer",
    '{"name": "look_up", "arguments": {"of": "the fox", "times": 3}}',
] * 3

_TURN = "{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') + '<|im_end|>\\n' }}"
_PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

TEMPLATES: dict[str, str] = {
    "chatml": "{% for m in messages %}" + _TURN + "{% endfor %}" + _PROMPT,
    "hermes": (Path(__file__).parents[3] / "tests" / "engines" / "hermes.jinja").read_text(encoding="utf-8"),
    # As Mistral's: roles alternate, white space is part of the markers, and the end of a text ends the answer.
    "inst": (
        "<s>{% for m in messages if m.role != 'system' %}"
        "{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
        "{% elif m.role == 'assistant' %}{{ ' ' + m.content|trim + '</s>' }}"
        "{% else %}{{ raise_exception('only user and assistant roles') }}{% endif %}{% endfor %}"
    ),
    # As Qwen3's: the reasoning of answers before the last question is left out.
    "forgetful": (
        "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
        "{% if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last %}"
        "{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}"
        "{{ (m.content or '') + '<|im_end|>\\n' }}{% endfor %}" + _PROMPT
    ),
    # As DeepSeek-R1's: reasoning is never written again, though the prompt begins it.
    "thoughtless": "{% for m in messages %}"
    + _TURN
    + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
    # Keeps all reasoning.
    "thoughtful": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
        "{% if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}"
        "{{ (m.content or '') + '<|im_end|>\\n' }}{% endfor %}" + _PROMPT
    ),
    # Leaves a place for images.
    "seeing": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
        + _PROMPT
    ),
    # Numbers the messages, so that each depends on how many came before.
    "counting": "{% for m in messages %}{{ '<|im_start|>' + m.role + ' ' ~ loop.index ~ '\\n' + (m.content or '') + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant ' ~ (messages|length + 1) ~ '\\n' }}{% endif %}",
}


@functools.cache
def tokenizer_of(kind: str, template: str) -> Any:
    """A tokenizer that splits bytes, as GPT's do, or words with their space in front, as SentencePiece does."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE(byte_fallback=kind == "spaces", unk_token="<|endoftext|>"))
    if kind == "bytes":
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        special = SPECIAL
    else:
        core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        alphabet = []
        special = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(CORPUS, trainer)
    end = "</s>" if template == "inst" else "<|im_end|>"
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token=end, pad_token="<|endoftext|>", chat_template=TEMPLATES[template]
    )
