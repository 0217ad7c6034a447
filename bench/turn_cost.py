"""What a turn costs with a long history: lagent beside lagent 0.5.

    python bench/turn_cost.py [--folder bench/results]

Measures the time that the framework itself takes for a call, with a model that answers at once, at 10 to 10,000 messages of history. Both
are run in turn in fresh processes, several times; the least time of each counts. Writes the table and a plot, and exits with 1 if a turn
at 10,000 messages takes more than twice one at 10, or one at 10 more than lagent 0.5's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from peer import UPSTREAM, python_with

HISTORY = (10, 100, 1_000, 10_000)
ROUNDS = 5

# Runs with both: what it uses is in lagent 0.5 as well. The history grows by two messages a call, which at the end is left out of account.
PROGRAM = """
import gc, json, sys, time, warnings
warnings.simplefilter("ignore")
from lagent.agents import Agent
from lagent.llms import BaseLLM
from lagent.schema import AgentMessage

class Model(BaseLLM):
    def chat(self, inputs, *args, **kwargs):
        return "I see."

times = {}
for history in json.loads(sys.argv[1]):
    agent = Agent(Model("none"), "You are a patient listener.")
    turn = [AgentMessage(content="One more thing, then.", sender="user"), AgentMessage(content="Do go on.", sender="Agent")]
    agent.memory.add(turn * (history // 2), session_id=0)
    agent("Hello")
    gc.collect()
    gc.disable()
    best = float("inf")
    for _ in range(100):
        start = time.perf_counter()
        agent("Hello")
        best = min(best, time.perf_counter() - start)
    gc.enable()
    times[history] = best
print(json.dumps(times))
"""

PLOT = """
import json, sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
times, path = json.loads(sys.argv[1]), sys.argv[2]
for name, series in times.items():
    plt.plot([int(n) for n in series], [1e6 * t for t in series.values()], marker="o", label=name)
plt.xscale("log"); plt.yscale("log")
plt.xlabel("messages of history"); plt.ylabel("framework time for a call (µs)")
plt.grid(alpha=0.3); plt.legend()
plt.savefig(path)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the cost of a turn.")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "results", help="where the table and the plot go")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    pythons = {"lagent": sys.executable, UPSTREAM: python_with(UPSTREAM)}
    times = {name: dict.fromkeys(map(str, HISTORY), float("inf")) for name in pythons}
    for number in range(ROUNDS):
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
        for name, python in pythons.items():
            for history, seconds in measure(python).items():
                times[name][history] = min(times[name][history], seconds)
    table = render(times)
    print(table)
    (folder / "turn_cost.md").write_text(table + "\n", encoding="utf-8")
    plot = [python_with("matplotlib"), "-c", PLOT, json.dumps(times), str(folder / "turn_cost.svg")]
    subprocess.run(plot, check=True)
    ours, theirs = times["lagent"], times[UPSTREAM]
    return 0 if ours["10000"] <= 2 * ours["10"] and ours["10"] <= theirs["10"] else 1


def measure(python: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as elsewhere:
        command = [python, "-c", PROGRAM, json.dumps(HISTORY)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=elsewhere)
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


def render(times: dict[str, dict[str, float]]) -> str:
    lines = [f"| messages of history | {' | '.join(times)} |", "| ---: |" + " ---: |" * len(times)]
    for history in map(str, HISTORY):
        lines.append(
            f"| {int(history):,} | " + " | ".join(f"{series[history] * 1e6:,.0f} µs" for series in times.values()) + " |"
        )
    for name, series in times.items():
        lines.append(f"\nA turn of {name} at 10,000 messages takes {series['10000'] / series['10']:.2f} times one at 10.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
