"""How long ``import lagent`` takes: beside its four dependencies, and beside lagent 0.5.

    python bench/import_time.py [--without-upstream]

Lagent 0.5 is installed into an environment of its own, at the first use, which takes a minute or two. All times are the least of
several runs in turn in fresh processes, so that a busy machine disturbs them little; what counts are the ratios. The exit code is 1 if
one is above its limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from peer import UPSTREAM, python_with

PUBLIC = "lagent.schema, lagent.agents, lagent.memory, lagent.hooks, lagent.llms, lagent.actions, lagent.prompts.parsers"
DEPENDENCIES = "attrs, cattrs, pluggy, stevedore"
LIMITS = {"dependencies": 4.0, "upstream": 0.1}
RUNS = 9


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the time of importing lagent.")
    parser.add_argument("--without-upstream", action="store_true", help=f"do not install and measure {UPSTREAM}")
    cases = {"lagent": (sys.executable, PUBLIC), "dependencies": (sys.executable, DEPENDENCIES)}
    if not parser.parse_args().without_upstream:
        cases["upstream"] = (python_with(UPSTREAM), "lagent.agents, lagent.llms, lagent.actions")
    times = {name: float("inf") for name in cases}
    for _ in range(RUNS):
        for name, (python, modules) in cases.items():
            times[name] = min(times[name], seconds(python, modules))
    passed = True
    print(f"{'lagent':14} {times['lagent'] * 1000:7.0f} ms")
    for name in list(cases)[1:]:
        ratio = times["lagent"] / times[name]
        passed &= ratio <= LIMITS[name]
        print(f"{name:14} {times[name] * 1000:7.0f} ms   lagent takes {ratio:.2f} times that, at most {LIMITS[name]} is allowed")
    return 0 if passed else 1


def seconds(python: str, modules: str) -> float:
    program = f"import time; start = time.perf_counter(); import {modules}; print(time.perf_counter() - start)"
    return float(subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    sys.exit(main())
