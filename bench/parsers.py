"""What it costs to parse an answer while it arrives: 100 KB in pieces of four characters.

For every parser: the last thousand pieces against the first thousand, and the whole against two others in the same run: the way of
lagent 0.5, which parses the whole text again at each piece (measured at a hundred places and added up; for lagent's own tool parsers the
code of lagent 0.5.0rc3 itself), and, where ``LAGENT_VLLM_PYTHON`` names the interpreter of an environment that has vLLM, vLLM's
streaming parser of the same dialect (stopped after ``--limit`` seconds).

    python bench/parsers.py [NAME …] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peer import UPSTREAM, python_with

from lagent.registry import create, names
from lagent.schema import ParsedResponse, ToolCall
from lagent_parsers.dialect import DialectParser

PIECE, SIZE, PLACES = 4, 100_000, 100
HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "lagent-parsers" / "tests"
PROSE = "The report looks at how the harvest of 2025 came about, region by region, and at what it means for prices. "
CODE = "for row in table:\n    total += row['amount'] * 1.07  # \"gross\" <b>\n"

_UPSTREAM = """
import json, sys, time
from lagent.prompts.parsers import InterpreterParser, MixedToolParser, PluginParser, ToolParser
make = {"tool": lambda: ToolParser("tool"), "plugin": PluginParser, "interpreter": InterpreterParser,
        "mixed": lambda: MixedToolParser(parsers=[PluginParser(), InterpreterParser()])}
results = {}
for name, (text, ends) in json.load(sys.stdin).items():
    parser = make[name]()
    start = time.thread_time()
    for end in ends:
        parser.parse_response(text[:end])
    results[name] = (time.thread_time() - start) / len(ends)
print(json.dumps(results))
"""
_VLLM = """
import json, logging, sys, time
logging.disable(logging.CRITICAL)
sys.path.insert(0, sys.argv[1])
import vllm_peer
given = json.load(sys.stdin)
results = {}
for name, (tool, text) in given["texts"].items():
    try:
        parser, request, encode = vllm_peer.parser_for(tool, None, text, given)
        pieces = [text[i : i + given["piece"]] for i in range(0, len(text), given["piece"])]
        ids = [encode(piece) for piece in pieces]
        done, start = 0, time.thread_time()
        for piece, tokens in zip(pieces, ids):
            parser.parse_delta(piece, tokens, request, prompt_token_ids=[], finished=False)
            done += 1
            if time.thread_time() - start > given["limit"]:
                break
        results[name] = [time.thread_time() - start, done / len(pieces)]
    except Exception as error:  # some need a tokenizer or packages of their model
        print(f"vLLM's parser for {name} cannot be measured: {error!r:.200}", file=sys.stderr)
json.dump(results, sys.stdout)
"""


def parsers(wanted: list[str]) -> dict[str, tuple[Any, str]]:
    """Every parser that can be had, with 100 KB for it."""
    schema = {"type": "object", "properties": {"rows": {"type": "array"}}}
    arguments: dict[str, dict[str, Any]] = {
        "tool": {"tool_type": "tool"},
        "json": {"answer": schema},
        "custom-format": {"answer": schema},
    }
    arguments["mixed"] = {"parsers": [{"type": "plugin"}, {"type": "interpreter"}]}
    found = {}
    for name in names("parsers"):
        if name in ("auto", "str") or (wanted and name not in wanted):
            continue
        parser = create("parsers", {"type": name, **arguments.get(name, {})})
        found[name] = (parser, _text(name, parser))
    return found


def _text(name: str, parser: Any) -> str:
    prose = PROSE * (SIZE // 2 // len(PROSE))
    large = {"path": "report.py", "text": CODE * (SIZE // 10 // len(CODE))}
    if isinstance(parser, DialectParser):
        calls = [ToolCall("write_file", large) for _ in range(5)] if parser.dialect.blocks else []
        return str(parser.format_response(ParsedResponse(prose.strip(), PROSE * 20 if not calls else None, calls)))
    if name in ("json", "custom-format"):
        return str(parser.format_response({"rows": [large] * 9}))
    action = {"name": "write_file", "parameters": {"path": "report.py", "text": CODE * (SIZE // 2 // len(CODE))}}
    kind = getattr(parser, "tool_type", None) or "plugin"
    return str(parser.format_response({"tool_type": kind, "thought": prose, "action": action, "status": 1}))


def stream(parser: Any, text: str) -> tuple[float, float, float]:
    """The processor seconds for all of ``text``, for the first and for the last thousand pieces; the best of five runs each."""
    pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    parts = [pieces[:1000], pieces[1000:-1000], pieces[-1000:]]
    runs = []
    for _ in range(5):
        reader, times = parser.stream(), [time.thread_time()]
        ask: Callable[[], Any] = getattr(reader, "increment", lambda: None)
        for part in parts:
            for piece in part:
                reader.feed(piece)
                ask()
            times.append(time.thread_time())
        reader.finish()
        runs.append((time.thread_time() - times[0], times[1] - times[0], times[3] - times[2]))
    whole, first, last = (min(run[i] for run in runs) for i in range(3))
    return whole, first, last


def again(parser: Any, text: str) -> float:
    """The seconds that parsing the whole text again at each piece takes, from as many places as ``PLACES``."""
    start = time.thread_time()
    for end in _places(text):
        parser.parse_response(text[:end])
    return (time.thread_time() - start) / PLACES * len(text) / PIECE


def _places(text: str) -> list[int]:
    return [len(text) * place // PLACES for place in range(1, PLACES + 1)]


def upstream(found: dict[str, tuple[Any, str]]) -> dict[str, float]:
    own = {name: [text, _places(text)] for name, (_, text) in found.items() if name in ("tool", "plugin", "interpreter", "mixed")}
    if not own:
        return {}
    done = subprocess.run(
        [python_with(UPSTREAM), "-c", _UPSTREAM], input=json.dumps(own), capture_output=True, text=True, check=True
    )
    return {name: seconds * len(found[name][1]) / PIECE for name, seconds in json.loads(done.stdout.splitlines()[-1]).items()}


def vllm(found: dict[str, tuple[Any, str]], limit: float) -> dict[str, tuple[float, float]]:
    """The seconds that vLLM took, and which part of the text it had read when the time was up."""
    python = os.environ.get("LAGENT_VLLM_PYTHON")
    if not python:
        return {}
    sys.path.insert(0, str(PEERS))
    from test_peers import NAMES, TOOLS, markers

    theirs = {name: (NAMES["vllm"][name], text) for name, (_, text) in found.items() if name in NAMES["vllm"]}
    tool = {
        "name": "write_file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}},
    }
    given = {
        "tools": [*TOOLS, {"type": "function", "function": tool}],
        "vocabulary": sorted({marker for name in theirs for marker in markers(found[name][0])}),
        "texts": theirs,
        "piece": PIECE,
        "limit": limit,
    }
    done = subprocess.run(
        [python, "-c", _VLLM, str(PEERS / "peers")], input=json.dumps(given), stdout=subprocess.PIPE, text=True, check=True
    )
    results: dict[str, tuple[float, float]] = json.loads(done.stdout[done.stdout.rindex('{"') :])
    return results


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME", help="the parsers; all if none is named")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON as well")
    options.add_argument(
        "--limit", type=float, default=10.0, metavar="SECONDS", help="how long each parser of vLLM may take (10)"
    )
    args = options.parse_args()
    found = parsers(args.names)
    rows = {}
    print(f"{'parser':18} {'ms':>7} {'µs/piece':>9} {'last/first':>10} {'again/ours':>10} {'vLLM/ours':>10}")
    old, peers = upstream(found), vllm(found, args.limit)
    for name, (parser, text) in found.items():
        whole, first, last = stream(parser, text)
        repeated = old.get(name) or again(parser, text)
        taken, part = peers.get(name, (None, 1.0))
        row = {
            "characters": len(text),
            "seconds": whole,
            "last_to_first": last / first,
            "again_to_ours": repeated / whole,
            "vllm_to_ours": taken and taken / whole,
            "vllm_part": part,
        }
        rows[name] = row
        theirs = "" if taken is None else f"{'>' if part < 1 else ''}{taken / whole:.1f}"
        per_piece = whole / len(text) * PIECE * 1e6
        print(
            f"{name:18} {whole * 1e3:7.0f} {per_piece:9.1f} {last / first:10.2f} {repeated / whole:10.0f} {theirs:>10}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
