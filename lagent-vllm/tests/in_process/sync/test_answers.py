"""What the answers are: in batches, streams and threads, and in every form that can be asked for."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lagent.errors import ModelConfigurationError, UnsupportedCapabilityError
from lagent.schema import ResponseBuilder
from lagent.testing.model_kit import ask
from lagent_engines.testing import WORDS

QUESTIONS = [ask(f"Tell me about the word {word}.") for word in WORDS]


def test_a_batch_is_one_batch_of_the_engine(sync_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = [sync_model.chat(question) for question in QUESTIONS]
    running = []
    engine = sync_model._engine
    monkeypatch.setattr(
        engine, "wait_for", lambda answer, wait=engine.wait_for: (running.append(engine.running), wait(answer))[1]
    )
    assert sync_model.chat(QUESTIONS) == one_by_one
    assert running[0] == len(QUESTIONS)
    assert len(set(map(str, one_by_one))) > len(QUESTIONS) // 2, "the questions do not tell the answers apart"


def test_threads_share_the_steps_of_the_engine(sync_model: Any) -> None:
    one_by_one = [sync_model.chat(question) for question in QUESTIONS]
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        whole = list(pool.map(sync_model.chat, QUESTIONS))
        streamed = list(pool.map(lambda question: _streamed(sync_model, question).content, QUESTIONS))
    assert whole == one_by_one
    assert streamed == one_by_one


def test_a_slow_reader_holds_up_nobody(sync_model: Any) -> None:
    stream = sync_model.stream_chat(QUESTIONS[0], max_new_tokens=64)
    next(stream)
    assert sync_model.chat(QUESTIONS[1])
    rest = "".join(chunk.content for chunk in stream)
    assert rest
    assert sync_model._engine.running == 0


def test_token_ids_and_log_probabilities(sync_model: Any) -> None:
    options = {"return_token_ids": True, "logprobs": 3, "prompt_logprobs": 1}
    whole, streamed = sync_model.chat(QUESTIONS[0], **options), _streamed(sync_model, QUESTIONS[0], **options)
    tokenizer = sync_model._tokenizer
    assert whole.extra["prompt_token_ids"] == tokenizer.apply_chat_template(QUESTIONS[0], add_generation_prompt=True)["input_ids"]
    assert tokenizer.decode(whole.extra["token_ids"], skip_special_tokens=True) == whole.content
    assert len(whole.extra["token_ids"]) == whole.usage.completion_tokens
    for name in ("prompt_token_ids", "token_ids"):
        assert whole.extra[name] == streamed.extra[name]
    tokens = whole.extra["logprobs"]
    assert [token["token_id"] for token in tokens] == whole.extra["token_ids"]
    assert all(token["logprob"] == token["top_logprobs"][0]["logprob"] for token in tokens), "greedy takes the likeliest"
    assert [len(token["top_logprobs"]) for token in tokens] == [3] * len(tokens)
    assert [token["token_id"] for token in streamed.extra["logprobs"]] == whole.extra["token_ids"]
    prompt = whole.extra["prompt_logprobs"]
    assert prompt[0] is None
    assert [token["token_id"] for token in prompt[1:]] == whole.extra["prompt_token_ids"][1:]


def test_held_to_a_form(sync_model: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    assert re.fullmatch("[a-c]{4}", sync_model.chat(QUESTIONS[0], regex="[a-c]{4}"))
    assert sync_model.chat(QUESTIONS[0], choice=["red", "green"]) in ("red", "green")
    assert sync_model.chat(QUESTIONS[0], grammar='root ::= "yes" | "no"') in ("yes", "no")
    assert isinstance(json.loads(sync_model.chat(ask("Give a number as JSON."), output_schema=schema))["n"], int)
    with pytest.raises(ModelConfigurationError, match="choice and regex exclude each other"):
        sync_model.chat(QUESTIONS[0], regex="a", choice=["b"])
    with pytest.raises(ModelConfigurationError, match="regex"):
        sync_model.chat(QUESTIONS[0], regex="(((")


def test_sampling_parameters_of_vllm(sync_model: Any) -> None:
    random = {"temperature": 1.0, "top_k": 20, "seed": 7}
    assert sync_model.chat(QUESTIONS[0], **random) == sync_model.chat(QUESTIONS[0], **random)
    assert sync_model.chat(QUESTIONS[0], ignore_eos=True, min_tokens=16).usage.completion_tokens == 16
    hello = sync_model._tokenizer.encode("Hello", add_special_tokens=False)
    assert sync_model.chat(QUESTIONS[0], allowed_token_ids=hello, max_new_tokens=3) == "HelloHelloHello"
    tokens = sync_model.chat(QUESTIONS[0], return_token_ids=True).extra["token_ids"]
    stopped = sync_model.chat(QUESTIONS[0], return_token_ids=True, stop_token_ids=[tokens[4]])
    assert stopped.extra["token_ids"] == tokens[: tokens.index(tokens[4]) + 1]
    assert stopped.finish_reason == "stop"
    for wrong in ({"temperature": -1.0}, {"top_p": 2.0}, {"min_p": "much"}):
        with pytest.raises(ModelConfigurationError, match="vLLM refuses"):
            sync_model.chat(QUESTIONS[0], **wrong)
    for name in ("max_tokens", "n", "structured_outputs", "guided_json"):
        with pytest.raises(ModelConfigurationError, match=name):
            sync_model.chat(QUESTIONS[0], **{name: 1})


def test_a_stop_word_that_is_a_special_token(sync_model: Any) -> None:
    # Its text never comes, as special tokens are left out.
    special = sync_model._tokenizer.convert_tokens_to_ids("<|im_start|>")
    response = sync_model.chat(QUESTIONS[0], stop_words=["<|im_start|>"], allowed_token_ids=[special], return_token_ids=True)
    assert (response.content, response.finish_reason, response.extra["token_ids"]) == ("", "stop", [special])


def test_images_are_refused(sync_model: Any) -> None:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    with pytest.raises(UnsupportedCapabilityError, match="image"):
        sync_model.chat([{"role": "user", "content": parts}])


def _streamed(model: Any, messages: Any, **options: Any) -> Any:
    builder = ResponseBuilder()
    for chunk in model.stream_chat(messages, **options):
        builder.add(chunk)
    return builder.response()
