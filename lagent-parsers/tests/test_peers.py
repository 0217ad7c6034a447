"""The same texts through vLLM's and LMDeploy's own parsers and through ours.

``LAGENT_VLLM_PYTHON`` and ``LAGENT_LMDEPLOY_PYTHON`` name the interpreters of environments that have them; see ``peers/``, where
``differences.json`` says why a text is read otherwise by a peer, by patterns of "dialect: text, whole | tokens | pieces".
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import lagent_lmdeploy.server
import lagent_vllm.server
from lagent.registry import create
from lagent.schema import ParsedResponse, ToolCall

HERE = Path(__file__).parent / "peers"
DIFFERENCES = json.loads((HERE / "differences.json").read_text(encoding="utf-8"))
SPLITS = 3  # token by token, and at random

NAMES = {  # ours: theirs; vLLM's parser for cohere needs a package that its environment does not have
    "vllm": {name: parser for name, parser in lagent_vllm.server.PARSERS.tools.items() if name != "cohere"},
    "lmdeploy": lagent_lmdeploy.server.PARSERS.tools,
}
REASONING = {"vllm": "deepseek_r1", "lmdeploy": "default"}  # of <think>
OWN_REASONING = {"gemma-4": "gemma4", "harmony": "openai_gptoss", "mistral": "mistral", "seed-oss": "seed_oss"}  # ours: vLLM's

OTHER_TOKENS = {  # of reasoning, and of what our dialects do not know as a marker of its own
    *("<think>", "</think>", "[THINK]", "[/THINK]", "<seed:think>", "</seed:think>", "<|channel>", "<channel|>"),
    *("<tool_calls>", "</tool_calls>", "[ARGS]"),
}

PROPERTIES = {"city": "string", "days": "integer", "exact": "boolean", "note": "string", "where": "object", "tags": "array"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}},
        },
    }
    for name, properties in {"get_weather": PROPERTIES, "now": {}}.items()
]

PARIS = ToolCall("get_weather", {"city": "Paris"})
NOW = ToolCall("now", {})
SAID = {
    "text": ParsedResponse("The weather is fine."),
    "call": ParsedResponse("", None, [PARIS]),
    "text and call": ParsedResponse("I will look.", None, [PARIS]),
    "two calls": ParsedResponse("", None, [PARIS, ToolCall("get_weather", {"city": "London", "days": 3})]),
    "no arguments": ParsedResponse("", None, [NOW]),
    "types": ParsedResponse(
        "", None, [ToolCall("get_weather", {"days": -7, "exact": True, "where": {"lat": 1.5, "near": ["a"]}, "tags": [1, "b"]})]
    ),
    "scripts": ParsedResponse(
        "Ich schaue nach — 好的。", None, [ToolCall("get_weather", {"city": "北京", "note": "schöne Grüße 🌦"})]
    ),
    "lines": ParsedResponse(
        "", None, [ToolCall("get_weather", {"city": "Paris", "note": 'one\n  two: "three"\n\n{4} [5] <b>6</b>'})]
    ),
}
THOUGHT = ParsedResponse("I will look.", "The user wants the weather.", [PARIS])


def texts(peer: str) -> list[dict[str, Any]]:
    """The texts, as our parsers write them, which the corpus holds to the forms of the models."""
    shuffle = random.Random(0)
    cases = []
    for dialect, theirs in NAMES[peer].items():
        own = OWN_REASONING.get(dialect)
        for name, said in {**SAID, "reasoning": THOUGHT}.items():
            reasoning = name == "reasoning"
            style = {} if own else {"reasoning": "think" if reasoning else "none"}
            parser = create("parsers", {"type": dialect, "tools": TOOLS, **style})
            text = parser.format_response(said)
            # Tokenizers do not cut markers and hardly cut tags, and some peers rely on it.
            known = "|".join(map(re.escape, sorted(markers(parser), key=len, reverse=True)))
            atoms = re.split(f"({known}|</?[^<>]{{1,60}}>|.)", text, flags=re.DOTALL)
            tokens = [atom for atom in atoms if atom]
            between = list(itertools.accumulate(map(len, tokens)))[:-1]
            cuts = [sorted(shuffle.sample(between, min(len(between), 12))) for _ in range(SPLITS - 1)]
            cases.append(
                {
                    "dialect": dialect,
                    "name": name,
                    "parser": parser,
                    "tool": theirs,
                    "reasoning": (own or REASONING[peer]) if reasoning else None,
                    "text": text,
                    "splits": [tokens, *([text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)] for at in cuts)],
                }
            )
    return cases


def markers(parser: Any) -> set[str]:
    dialect = parser.dialect
    found = {marker for block in dialect.blocks for marker in (block.open, *block.close)} | {*dialect.hidden, *dialect.section}
    return {marker for marker in found if len(marker) > 3 and "DSML" not in marker} | OTHER_TOKENS


def read_by(peer: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    python = os.environ.get(f"LAGENT_{peer.upper()}_PYTHON")
    if not python:
        pytest.skip(f"LAGENT_{peer.upper()}_PYTHON is not set")
    given = {
        "tools": TOOLS,
        "vocabulary": sorted({marker for case in cases for marker in markers(case["parser"])}),
        "texts": [{key: case[key] for key in ("tool", "reasoning", "text", "splits")} for case in cases],
    }
    done = subprocess.run(
        [python, str(HERE / f"{peer}_peer.py")], input=json.dumps(given), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[dict[str, Any]] = json.loads(done.stdout[done.stdout.index("[{") :])
    return results


def normal(found: dict[str, Any]) -> Any:
    """A result without what the parsers define differently: white space round content, and how arguments are written."""
    if "error" in found:
        return found["error"]
    calls = [
        (name, json.loads(arguments or "{}") if isinstance(arguments, str) else arguments) for name, arguments in found["calls"]
    ]
    return (found["content"].strip(), found["reasoning"].strip(), calls)


def ours(case: dict[str, Any], pieces: list[str]) -> Any:
    stream = case["parser"].stream()
    for piece in pieces:
        stream.feed(piece)
    read = stream.finish()
    return normal(
        {"content": read.content, "reasoning": read.reasoning or "", "calls": [(c.name, c.arguments) for c in read.tool_calls]}
    )


def same(theirs: dict[str, Any], mine: Any) -> bool:
    try:
        return bool(normal(theirs) == mine)
    except ValueError:  # their arguments are no JSON
        return False


@pytest.mark.engine
@pytest.mark.timeout(700)
@pytest.mark.parametrize("peer", NAMES)
def test_the_peer_reads_the_same_or_the_difference_is_known(peer: str) -> None:
    cases = texts(peer)
    results = read_by(peer, cases)
    different: dict[str, str] = {}
    agreements = 0
    for case, result in zip(cases, results, strict=True):
        key = f"{case['dialect']}: {case['name']}"
        mine = ours(case, [case["text"]])
        if not same(result["whole"], mine):
            different[f"{key}, whole"] = f"{case['text']!r}\n  theirs {result['whole']}\n  ours   {mine}"
        else:
            agreements += 1
        for place, (pieces, theirs) in enumerate(zip(case["splits"], result["streamed"], strict=True)):
            assert ours(case, pieces) == mine
            if same(theirs, mine):
                agreements += 1
            else:
                different[f"{key}, {'pieces' if place else 'tokens'}"] = f"{pieces!r}\n  theirs {theirs}\n  ours   {mine}"
    print(
        f"{peer}: {len(cases)} texts, each whole and in {SPLITS} splits: {agreements} agreements of {len(cases) * (1 + SPLITS)}"
    )
    known = DIFFERENCES[peer]
    unexplained = {
        key: text for key, text in different.items() if not any(fnmatch.fnmatchcase(key, pattern) for pattern in known)
    }
    assert not unexplained, "\n".join(f"{key}: {text}" for key, text in unexplained.items())
    gone = [pattern for pattern in known if not fnmatch.filter(different, pattern)]
    assert not gone, f"the peer reads these as we do now: {gone}"
