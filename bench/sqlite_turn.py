"""What a turn costs when memory is in SQLite, with a short and with a long history.

    python bench/sqlite_turn.py [--folder bench/results]

Times whole calls of agents, with a model that answers at once, on files that hold 100 to 100,000 messages: on the disk of temporary files,
where most of the time is the disk's, and on a disk in memory, where there is one, which leaves the work of lagent and SQLite. The agents
take turns, so that what else the machine does affects them alike. Writes the table, and exits with 1 if a turn at 100,000 messages takes
more than twice one at 100.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lagent.agents import Agent
from lagent.llms import BaseLLM, ModelRequest
from lagent_sqlite import SQLiteStore

HISTORY = (100, 1_000, 10_000, 100_000)
ROUNDS = 300
MEMORY_DISK = Path("/dev/shm")


class Model(BaseLLM):
    blocking = False

    def _complete(self, request: ModelRequest) -> Any:
        return "I see. Do go on, and tell me how that made you feel."


def measure(folder: Path) -> dict[int, list[float]]:
    """The seconds of each turn, by the length of the history."""
    agents = {}
    for history in HISTORY:
        store = SQLiteStore(folder / f"{history}.db")
        question, answer = ({"content": "One more thing, then: " + "and so on " * 20, "sender": who} for who in ("user", "Agent"))
        store.append("Agent", 0, [question, answer] * (history // 2))
        agents[history] = Agent(Model("none"), "You are a patient listener.", memory=store)
        agents[history]("The first call reads what is there.")
    times: dict[int, list[float]] = {history: [] for history in HISTORY}
    for _ in range(ROUNDS):
        for history, agent in agents.items():
            start = time.perf_counter()
            agent("Hello")
            times[history].append(time.perf_counter() - start)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the cost of a turn whose memory is in SQLite.")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "results", help="where the table goes")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    places = {"disk": None, "disk in memory": MEMORY_DISK} if MEMORY_DISK.is_dir() else {"disk": None}
    columns = {}
    for name, place in places.items():
        print(f"measuring on the {name} …", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=place) as files:
            columns[name] = measure(Path(files))
    lines = ["| messages of history | " + " | ".join(f"{name}: median (least)" for name in columns) + " |"]
    lines.append("| ---: |" + " ---: |" * len(columns))
    for history in HISTORY:
        cells = [
            f"{1e6 * statistics.median(times[history]):,.0f} µs ({1e6 * min(times[history]):,.0f} µs)"
            for times in columns.values()
        ]
        lines.append(f"| {history:,} | " + " | ".join(cells) + " |")
    ratios = {
        name: statistics.median(times[HISTORY[-1]]) / statistics.median(times[HISTORY[0]]) for name, times in columns.items()
    }
    for name, ratio in ratios.items():
        lines += [
            "",
            f"On the {name}, a turn at {HISTORY[-1]:,} messages takes {ratio:.2f} times one at {HISTORY[0]:,} (medians).",
        ]
    table = "\n".join(lines) + "\n"
    (folder / "sqlite_turn.md").write_text(table, "utf-8")
    print(table)
    return int(max(ratios.values()) > 2)


if __name__ == "__main__":
    sys.exit(main())
