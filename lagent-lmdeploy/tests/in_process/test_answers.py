"""What the answers are: those of the model, whole, streamed, in every form that can be asked for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lagent.schema import ModelResponse, ResponseBuilder
from lagent_engines.testing import WORDS

from .conftest import PATH

QUESTIONS = [
    "What is the capital of France?",
    "Who wrote Hamlet?",
    "Name three colours.",
    "Write one sentence about the sea.",
    "Was ist ein Computer?",
    "def add(a, b):",
]


def ask(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def streamed(model: Any, *args: Any, **options: Any) -> ModelResponse:
    builder = ResponseBuilder()
    for chunk in model.stream_chat(*args, **options):
        builder.add(chunk)
    return builder.response()


def with_special_token(model: Any) -> dict[str, Any]:
    """A form of answers that has a special token in the middle."""
    token = model._tokenizer.convert_tokens_to_ids("<|im_start|>")
    one, two = ({"type": "const_string", "value": text} for text in ("one", "two"))
    return {"type": "structural_tag", "format": {"type": "sequence", "elements": [one, {"type": "token", "token": token}, two]}}


def test_greedy_answers_are_those_of_transformers(pipeline: Any) -> None:
    # In a process of its own, as the stand-in for a GPU changes PyTorch.
    command = [sys.executable, str(Path(__file__).with_name("greedy.py")), PATH]
    done = subprocess.run(command, input=json.dumps(QUESTIONS), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    equal = 0
    for question, expected in zip(QUESTIONS, json.loads(done.stdout), strict=True):
        response = pipeline.chat(ask(question), return_token_ids=True)
        answer = response.extra["token_ids"]
        assert response.extra["prompt_token_ids"] == expected["prompt"]
        assert response.content == pipeline._tokenizer.decode(answer, skip_special_tokens=True)
        at = next((at for at, pair in enumerate(zip(answer, expected["answer"], strict=False)) if pair[0] != pair[1]), None)
        if at is None:
            equal += answer == expected["answer"]
        else:
            assert answer[at] in expected["near"][at], (
                f"the answers to {question!r} differ in a token that is not nearly as likely"
            )
    assert equal >= len(QUESTIONS) / 2


def test_sessions_of_any_name_run_at_once_and_get_their_own_answers(pipeline: Any) -> None:
    names = [0, 1, "1", -5, "会话", 2**70, *(f"session {n}" for n in range(10))]
    questions = [f"Tell me about the word {word}." for word in WORDS]

    def answer(question: str, name: Any = 0) -> str:
        return pipeline.chat(ask(question), session_id=name, max_new_tokens=8)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(answer, questions, names))
    assert answers == [answer(question) for question in questions]
    # The same session may ask twice at once as well.
    with ThreadPoolExecutor(2) as pool:
        twice = list(pool.map(answer, questions[:2]))
    assert twice == answers[:2]


@pytest.mark.parametrize("stop", ["capital of", "France is Paris", "the", "<|im_end|>"])
def test_stop_words_of_several_tokens_and_special_ones(pipeline: Any, stop: str) -> None:
    whole = pipeline.chat(ask(QUESTIONS[0]))
    for response in (
        pipeline.chat(ask(QUESTIONS[0]), stop_words=["###", stop]),
        streamed(pipeline, ask(QUESTIONS[0]), stop_words=["###", stop]),
    ):
        assert response.content == whole.content.partition(stop)[0]
        assert response.finish_reason == "stop"
    assert pipeline._engine.running == 0


def test_a_special_token_ends_the_answer_where_it_would_not_show(pipeline: Any) -> None:
    """The engine leaves special tokens out of the text, and has to watch for them itself."""
    response = pipeline.chat(ask("Hello"), response_format=with_special_token(pipeline), stop_words=["<|im_start|>"])
    assert (response.content, response.finish_reason) == ("one", "stop")


def test_the_form_of_the_answer(pipeline: Any) -> None:
    question = ask("Which letters?")
    assert re.fullmatch("[a-c]{4}", pipeline.chat(question, regex="[a-c]{4}"))
    assert pipeline.chat(question, grammar='root ::= "yes" | "no"') in ("yes", "no")
    form = {"type": "regex_schema", "regex_schema": "[x-z]{3}"}
    assert re.fullmatch("[x-z]{3}", pipeline.chat(question, response_format=form))
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["n"]}
    response = streamed(pipeline, question, output_schema={**schema, "additionalProperties": False}, max_new_tokens=32)
    assert json.loads(response.content).keys() == {"n"}
    assert "\n\n" not in response.content


def test_sampling(pipeline: Any) -> None:
    question = ask("Tell me a story")
    greedy = pipeline.chat(question)
    one, two, other = (pipeline.chat(question, temperature=1.5, top_k=50, top_p=1.0, seed=seed) for seed in (7, 7, 8))
    assert one == two, "the seed was not taken"
    assert len({greedy.content, one.content, other.content}) == 3
    assert pipeline.chat(question, temperature=1.5, top_k=1) == greedy
    assert pipeline.chat(question, temperature=1.5, do_sample=False) == greedy
    # LMDeploy itself leaves the penalty out of greedy answers.
    repeats = ask("Say the word yes ten times.")
    assert pipeline.chat(repeats, repetition_penalty=1.8) != pipeline.chat(repeats)
    assert pipeline.chat(question, ignore_eos=True, max_new_tokens=12).usage.completion_tokens == 12


def test_log_probabilities(pipeline: Any) -> None:
    for response in (
        pipeline.chat(ask(QUESTIONS[0]), logprobs=3, return_token_ids=True),
        streamed(pipeline, ask(QUESTIONS[0]), logprobs=3, return_token_ids=True),
    ):
        tokens = response.extra["logprobs"]
        assert "".join(token["token"] for token in tokens) == response.content
        for token in tokens:
            assert len(token["top_logprobs"]) == 3
            assert token["top_logprobs"][0] == {name: token[name] for name in ("token", "logprob")}, (
                "a greedy token is not the likeliest"
            )
    assert "logprobs" not in pipeline.chat(ask(QUESTIONS[0])).extra


def test_text_as_it_is(pipeline: Any) -> None:
    response = pipeline.generate("One, two, three,", return_token_ids=True, max_new_tokens=4)
    assert response.extra["prompt_token_ids"] == pipeline._tokenizer.encode("One, two, three,")
    assert response.startswith(" four")


def test_special_tokens_on_request(pipeline: Any) -> None:
    options = {"response_format": with_special_token(pipeline)}
    assert pipeline.chat(ask("Hello"), **options) == "onetwo"
    assert pipeline.chat(ask("Hello"), **options, skip_special_tokens=False) == "one<|im_start|>two"
