"""Reads texts with vLLM's own parsers; runs in an environment that has vLLM, without lagent.

Standard input: ``{"tools": […], "vocabulary": [special tokens], "texts": [{"tool", "reasoning", "text", "splits": [[…]]}]}``, the names
being vLLM's. Standard output: for each text what was read as a whole and from each split, ``{"content", "reasoning", "calls"}`` or
``{"error"}``.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager


def tokenizer_for(special: list[str], text: str) -> Any:
    """A tokenizer with a token for each special token and each character."""
    vocabulary = {token: place for place, token in enumerate(dict.fromkeys([*special, "<unk>", *text]))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made, additional_special_tokens=special, unk_token="<unk>")


def read(case: dict[str, Any], given: dict[str, Any], tokenizer: Any, pieces: list[str] | None) -> dict[str, Any]:
    made = ParserManager.get_parser(
        tool_parser_name=case["tool"], reasoning_parser_name=case["reasoning"], enable_auto_tools=True, model_name="m"
    )
    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], tools=given["tools"])
    parser = made(tokenizer, request.tools)
    ids = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    if pieces is None:
        reasoning, content, calls = parser.parse(
            case["text"], request, enable_auto_tools=True, model_output_token_ids=ids(case["text"])
        )
        found = [[call.name, call.arguments] for call in calls or []]
    else:
        reasoning, content, streamed = "", "", dict[int, list[str]]()
        for place, piece in enumerate(pieces, 1):
            delta = parser.parse_delta(piece, ids(piece), request, prompt_token_ids=[], finished=place == len(pieces))
            content += (delta and delta.content) or ""
            reasoning += (delta and delta.reasoning) or ""
            for call in (delta and delta.tool_calls) or []:
                known = streamed.setdefault(call.index, ["", ""])
                known[0] += (call.function and call.function.name) or ""
                known[1] += (call.function and call.function.arguments) or ""
        found = list(streamed.values())
    return {"content": content or "", "reasoning": reasoning or "", "calls": found}


def attempt(*args: Any) -> dict[str, Any]:
    try:
        return read(*args)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    logging.disable(logging.CRITICAL)
    given = json.load(sys.stdin)
    tokenizer = tokenizer_for(given["vocabulary"], "".join(case["text"] for case in given["texts"]))
    results = [
        {
            "whole": attempt(case, given, tokenizer, None),
            "streamed": [attempt(case, given, tokenizer, pieces) for pieces in case["splits"]],
        }
        for case in given["texts"]
    ]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
