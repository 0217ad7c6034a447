"""Reads texts with LMDeploy's own parsers; runs in an environment that has LMDeploy, without lagent.

Input and output are those of ``vllm_peer.py``, the names being LMDeploy's.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

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
    else:
        reasoning, content, streamed = "", "", dict[int, list[str]]()
        for place, piece in enumerate(pieces, 1):
            for delta, _ in parser.stream_chunk(piece, [1] * len(piece), final=place == len(pieces)):
                content += delta.content or ""
                reasoning += delta.reasoning_content or ""
                for call in delta.tool_calls or []:
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
    results = [
        {
            "whole": attempt(case, given, None),
            "streamed": [attempt(case, given, pieces) for pieces in case["splits"]],
        }
        for case in given["texts"]
    ]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
