"""Chat templates, and prompts that extend each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lagent.llms import INTERNLM2_META
from lagent.testing import ModelTests

from .conftest import PATH

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "What is the capital of France?"},
]


def prompt_of(model: Any, messages: list[dict[str, Any]], **options: Any) -> str:
    response = model.chat(messages, return_token_ids=True, max_new_tokens=2, **options)
    return model._tokenizer.decode(response.extra["prompt_token_ids"])


def test_the_models_own(pipeline: Any) -> None:
    expected = pipeline._tokenizer.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    assert prompt_of(pipeline, TALK) == expected


def test_a_meta_template_that_differs(make: Callable[..., Any]) -> None:
    meta = [{"role": role, "begin": f"<{role}>", "end": "\n"} for role in ("system", "user", "assistant")]
    with pytest.warns(UserWarning, match="does not match the chat template"):
        model = make(meta_template=meta)
    assert prompt_of(model, TALK).endswith("<user>What is the capital of France?\n<assistant>")


def test_a_meta_template_that_is_the_same(make: Callable[..., Any]) -> None:
    model = make(meta_template=INTERNLM2_META, model_name="internlm-chat", on_template_mismatch="error")
    assert "Paris" in model.chat(TALK)


def test_a_template_of_lmdeploy(make: Callable[..., Any]) -> None:
    from lmdeploy import ChatTemplateConfig

    chatml: dict[str, Any] = {
        "model_name": "base",
        **{name: f"<|im_start|>{name}\n" for name in ("system", "user", "assistant")},
        **dict.fromkeys(("eosys", "eoh", "eoa"), "<|im_end|>\n"),
        "stop_words": ["<|im_end|>"],
    }
    for config in (chatml, ChatTemplateConfig(**chatml)):
        model = make(chat_template_config=config, on_template_mismatch="error")
        first = model.chat(TALK, return_token_ids=True)
        assert first.finish_reason == "stop"
        assert model._tokenizer.decode(first.extra["prompt_token_ids"]).endswith("<|im_start|>assistant\n")
        second = model.chat(
            [*TALK, {"role": "assistant", "content": first.content}, {"role": "user", "content": "Of Italy?"}],
            return_token_ids=True,
        )
        before = first.extra["prompt_token_ids"] + first.extra["token_ids"]
        assert second.extra["prompt_token_ids"][: len(before)] == before
        assert second.usage.cached_tokens
        model.close()


def test_a_template_of_lmdeploy_by_name() -> None:
    from lagent_lmdeploy import LMDeployPipeline

    with pytest.warns(UserWarning, match="does not match"):
        model = LMDeployPipeline(PATH, "vicuna", backend="pytorch")
    assert model.template_parser(TALK).endswith("USER: What is the capital of France? ASSISTANT:")
    assert not model.capabilities.tools


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_prompts_extend_the_last_turn_exactly(pipeline: Any, choice: str) -> None:
    """With calls that the model writes by itself, which it has to be shown, and with such that it was held to."""
    tool = ModelTests.tool
    messages = [
        message for city in ("Rome", "Oslo") for message in (question(city), call(f'{{"city": "{city}"}}', f"call_{city}"))
    ]
    before: list[int] = []
    for city in ("Paris", "Berlin", "Lima"):
        messages.append(question(city))
        called = pipeline.chat(messages, choice, tools=[tool], tool_choice=choice, return_token_ids=True, max_new_tokens=64)
        ids = called.extra["prompt_token_ids"]
        assert ids[: len(before)] == before
        assert not before or called.usage.cached_tokens > len(before) - 96
        # What the model wrote stays as it wrote it; a call that it was held to is rendered, in the form that it knows.
        before = ids + called.extra["token_ids"] if choice == "auto" else ids
        (made,) = called.tool_calls
        assert made.arguments == {"city": city}
        messages.append(call(made.arguments_text, made.id))
    messages.append({"role": "tool", "tool_call_id": made.id, "content": "sunny"})
    answer = pipeline.chat(messages, choice, tools=[tool], tool_choice="none", return_token_ids=True)
    assert answer.extra["prompt_token_ids"][: len(before)] == before
    assert "history_rewritten" not in answer.extra


def question(city: str) -> dict[str, Any]:
    return {"role": "user", "content": f"What is the weather in {city}? Look it up."}


def call(arguments: str, id_: str) -> dict[str, Any]:
    function = {"name": ModelTests.tool["function"]["name"], "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": id_, "type": "function", "function": function}]}
