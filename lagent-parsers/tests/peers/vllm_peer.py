"""Reads texts with vLLM's own parsers; runs in an environment that has vLLM, without lagent. See ``common.py``."""

from __future__ import annotations

import functools
from typing import Any

from common import collected, main
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.parser.harmony_utils import get_encoding
from vllm.parser.parser_manager import ParserManager


@functools.cache
def tokenizer_for(special: tuple[str, ...], characters: str) -> Any:
    """A tokenizer with a token for each special token and each character."""
    vocabulary = {token: place for place, token in enumerate(dict.fromkeys([*special, "<unk>", *characters]))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made, additional_special_tokens=list(special), unk_token="<unk>")


def parser_for(tool: str, reasoning: str | None, text: str, given: dict[str, Any]) -> tuple[Any, Any, Any]:
    """A parser for ``text``, the request that the text answers, and what turns text into tokens."""
    harmony = tool == "openai"  # the only one that reads no text, but the tokens of gpt-oss
    tokenizer = tokenizer_for(tuple(given["vocabulary"]), "".join(sorted(set(text))))
    made = ParserManager.get_parser(
        tool_parser_name=tool, reasoning_parser_name=reasoning, enable_auto_tools=True, model_name="m", is_harmony=harmony
    )
    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], tools=given["tools"])
    own = functools.partial(tokenizer.encode, add_special_tokens=False)
    ids = functools.partial(get_encoding().encode, allowed_special="all") if harmony else own
    return made(tokenizer, request.tools), request, ids


def read(case: dict[str, Any], given: dict[str, Any], pieces: list[str] | None) -> dict[str, Any]:
    parser, request, ids = parser_for(case["tool"], case["reasoning"], case["text"], given)
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
