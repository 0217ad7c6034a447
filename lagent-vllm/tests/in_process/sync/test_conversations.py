"""Conversations: chat templates, and prompts that extend each other, so that the prefix cache serves what was seen before."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lagent.agents import Agent
from lagent.errors import ModelConfigurationError
from lagent.llms import INTERNLM2_META
from lagent.testing import ModelTests
from lagent_vllm import VllmModel

from ..conftest import BLOCK, PATH, SMALL

CITIES = [
    "Rome",
    "Oslo",
    "Paris",
    "Cairo",
    "Lima",
    "Delhi",
    "Tokyo",
    "Quito",
    "Seoul",
    "Bonn",
    "Madrid",
    "Vienna",
    "Prague",
    "Dublin",
    "Lisbon",
    "Athens",
    "Warsaw",
    "Sofia",
    "Minsk",
    "Ankara",
]
SYSTEM = "You answer questions about the weather in the cities of the world. " + " ".join(
    f"Station {number} measures temperature, wind and rain near the town of Number {number}." for number in range(60)
)
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "What is the capital of France?"},
]


def test_twenty_turns_with_tool_calls_are_served_from_the_cache(sync_model: Any) -> None:
    """Of every turn, the engine computes only what is new."""
    prompts: list[list[int]] = []
    exact = 0

    def ask(**options: Any) -> Any:
        nonlocal exact
        response = sync_model.chat(
            messages, "turns", tools=[ModelTests.tool], return_token_ids=True, max_new_tokens=48, **options
        )
        prompt = response.extra["prompt_token_ids"]
        assert "history_rewritten" not in response.extra
        if prompts:
            last, seen = prompts[-2:]
            assert prompt[: len(last)] == last, "the prompt does not begin with the last one"
            exact += prompt[: len(seen)] == seen
            # The last token of an answer was never computed, and a block is cached once it is full.
            known = seen if prompt[: len(seen)] == seen else last
            assert response.usage.cached_tokens >= (len(known) - 1) // BLOCK * BLOCK
            assert response.usage.cached_tokens + BLOCK > 0.95 * len(prompt), "less than 95 % came from the cache"
        prompts.extend([prompt, prompt + response.extra["token_ids"]])
        return response

    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    for city in ("Bern", "Kyiv", "Riga", "Baku"):  # from which the model learns how it is done
        messages += [_question(city), _call(city, f"call {city}"), _result(f"call {city}"), _answer(f"It is sunny in {city}.")]
    for city in CITIES:
        messages.append(_question(city))
        response = ask()
        [call] = response.tool_calls
        messages += [{**_call(city, call.id), "content": response.content}, _result(call.id)]
        messages[-2]["tool_calls"][0]["function"]["arguments"] = call.arguments_text
        messages.append(_answer(ask(tool_choice="none").content))
    # A call that is written wrongly and read all the same stands in the history as it should have been.
    assert exact >= 0.9 * (len(prompts) // 2 - 1)


def test_the_prompts_are_those_of_the_template(sync_model: Any) -> None:
    own = sync_model._tokenizer
    assert _prompt(sync_model, TALK) == own.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    asked: list[dict[str, Any]] = [*TALK, _answer("Paris."), _question("Rome"), _call("Rome", "call1"), _result("call1")]
    for message in asked:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    expected = own.apply_chat_template(asked, tools=[ModelTests.tool], tokenize=False, add_generation_prompt=True)
    assert _prompt(sync_model, asked, tools=[ModelTests.tool]) == expected


def test_arguments_of_the_template(make: Callable[..., Any], sync_model: Any) -> None:
    source = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %} Think!{% endif %}"
    model = _sharing(sync_model, make(VllmModel, chat_template=source))
    assert _prompt(model, TALK[1:2]) == "Hello"
    assert _prompt(model, TALK[1:2], chat_template_kwargs={"enable_thinking": True}) == "Hello Think!"


def test_roles_that_the_template_does_not_know_are_refused(sync_model: Any) -> None:
    before = sync_model._engine.running
    with pytest.raises(ModelConfigurationError, match="narrator|tool"):
        sync_model.chat([{"role": "narrator", "content": ""}, {"role": "user", "content": "Hello"}])
    assert sync_model._engine.running == before


@pytest.mark.timeout(600)
def test_the_example_of_lagent_0_5(sync_model: Any) -> None:
    """The one of its README, with the path changed, and settings for this machine."""
    llm = VllmModel(
        path=PATH,
        meta_template=INTERNLM2_META,
        tp=1,
        top_k=1,
        temperature=1.0,
        stop_words=["<|im_end|>"],
        max_new_tokens=1024,
        vllm_cfg=SMALL,
    )
    system_prompt = "你的回答只能从“典”、“孝”、“急”三个字中选一个。"
    agent = Agent(_sharing(sync_model, llm), system_prompt)
    user_msg = "今天天气情况"
    bot_msg = agent(user_msg)
    assert bot_msg.sender == "Agent"
    assert bot_msg.content


def test_a_meta_template_that_differs(make: Callable[..., Any]) -> None:
    meta = [{"role": role, "begin": f"<{role}>", "end": "\n"} for role in ("system", "user", "assistant")]
    with pytest.warns(UserWarning, match="does not match the chat template"):
        make(VllmModel, meta_template=meta)
    with pytest.raises(ModelConfigurationError, match="does not match the chat template"):
        make(VllmModel, meta_template=meta, on_template_mismatch="error")


def _sharing(loaded: Any, model: Any) -> Any:
    """``model`` with the engine of another that is loaded already."""
    model._engine, model._adapters, model._stop, model._loaded = loaded._engine, {}, lambda: None, True
    return model


def _prompt(model: Any, messages: list[dict[str, Any]], **options: Any) -> str:
    response = model.chat(messages, "prompts", return_token_ids=True, max_new_tokens=2, **options)
    model.close_session("prompts")
    return str(model._tokenizer.decode(response.extra["prompt_token_ids"]))


def _question(city: str) -> dict[str, Any]:
    return {"role": "user", "content": f"What is the weather in {city}? Look it up."}


def _call(city: str, id_: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": id_, "type": "function", "function": function}]}


def _result(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": "sunny"}


def _answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}
