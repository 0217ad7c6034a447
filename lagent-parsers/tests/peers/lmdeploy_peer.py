"""Reads texts with LMDeploy's own parsers; runs in an environment that has LMDeploy, without lagent. See ``common.py``."""

from __future__ import annotations

from typing import Any

from common import collected, main
from lmdeploy.serve.openai.protocol import ChatCompletionRequest
from lmdeploy.serve.parsers.response_parser import BaseResponseParser


def read(case: dict[str, Any], given: dict[str, Any], pieces: list[str] | None) -> dict[str, Any]:
    made = type("Parser", (BaseResponseParser,), {})
    made.set_parsers(case["reasoning"], case["tool"])
    request = ChatCompletionRequest(
        model="m",
        messages=[{"role": "user", "content": "?"}],
        tools=given["tools"],
        chat_template_kwargs={"enable_thinking": bool(case["reasoning"])},
    )
    parser = made(request)
    if pieces is None:
        content, calls, reasoning = parser.parse_complete(case["text"])
        found = [[call.function.name, call.function.arguments] for call in calls or []]
        return {"content": content or "", "reasoning": reasoning or "", "calls": found}
    deltas = (
        delta
        for place, piece in enumerate(pieces, 1)
        for delta, _ in parser.stream_chunk(piece, [1] * len(piece), final=place == len(pieces))
    )
    return collected(deltas, "reasoning_content")


if __name__ == "__main__":
    main(read)
