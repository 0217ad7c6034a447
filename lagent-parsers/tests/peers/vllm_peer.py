"""Reads texts with vLLM's own parsers; runs in an environment that has vLLM, without lagent. See ``common.py``."""

from __future__ import annotations

import functools
from typing import Any

from common import collected, main
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager


@functools.cache
def tokenizer_for(special: tuple[str, ...], characters: str) -> Any:
    """A tokenizer with a token for each special token and each character."""
    vocabulary = {token: place for place, token in enumerate(dict.fromkeys([*special, "<unk>", *characters]))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made, additional_special_tokens=list(special), unk_token="<unk>")


def read(case: dict[str, Any], given: dict[str, Any], pieces: list[str] | None) -> dict[str, Any]:
    tokenizer = tokenizer_for(tuple(given["vocabulary"]), "".join(sorted({c for each in given["texts"] for c in each["text"]})))
    made = ParserManager.get_parser(
        tool_parser_name=case["tool"], reasoning_parser_name=case["reasoning"], enable_auto_tools=True, model_name="m"
    )
    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], tools=given["tools"])
    parser = made(tokenizer, request.tools)
    ids = functools.partial(tokenizer.encode, add_special_tokens=False)
    if pieces is None:
        reasoning, content, calls = parser.parse(
            case["text"], request, enable_auto_tools=True, model_output_token_ids=ids(case["text"])
        )
        found = [[call.name, call.arguments] for call in calls or []]
        return {"content": content or "", "reasoning": reasoning or "", "calls": found}
    deltas = (
        parser.parse_delta(piece, ids(piece), request, prompt_token_ids=[], finished=place == len(pieces))
        for place, piece in enumerate(pieces, 1)
    )
    return collected(deltas, "reasoning")


if __name__ == "__main__":
    main(read)
