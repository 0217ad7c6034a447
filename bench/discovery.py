"""What finding plugins costs, beside a bare scan of all entry points.

    python bench/discovery.py

500 distributions are laid out as pip leaves them, 100 of them plugins with eleven entry points each, whose modules raise an error when
they are imported. In fresh interpreters, in turn: the standard library's ``entry_points()``, and the registry listing every kind. Then one
component is got, and ``lagent plugins`` is run. Times are the least of several runs. Exits with 1 if the listing takes more than 1.5
times the bare scan, if a plugin was imported that nobody asked for, or if the command takes more than a second of processor time (which
is what it takes on a machine that does nothing else).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DISTRIBUTIONS, PLUGINS, RUNS = 500, 100, 9
MOST_TIMES, MOST_SECONDS = 1.5, 1.0
KINDS = ("llms", "async_llms", "parsers", "aggregators", "memory", "actions", "agents", "hooks", "commands")

BARE = """
import json, time
from importlib.metadata import entry_points
start = time.perf_counter()
entry_points()
print(json.dumps({"seconds": time.perf_counter() - start}))
"""
LISTING = """
import json, sys, time
from lagent import registry
start = time.perf_counter()
found = [(entry.name, entry.distribution, entry.value) for kind in registry.GROUPS for entry in registry.entries(kind)]
seconds = time.perf_counter() - start
imported = [name for name in sys.modules if name.startswith("plugin_")]
registry.get("llms", "good")
got = [name for name in sys.modules if name.startswith("plugin_")]
print(json.dumps({"seconds": seconds, "found": len(found), "imported": imported, "got": got}))
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        bare, listing = run(BARE, folder), run(LISTING, folder)
        for _ in range(RUNS - 1):
            bare, listing = min(bare, run(BARE, folder), key=seconds), min(listing, run(LISTING, folder), key=seconds)
        command, wall = map(
            min, zip(*(cost([sys.executable, "-m", "lagent", "plugins"], folder) for _ in range(RUNS)), strict=True)
        )
    times = seconds(listing) / seconds(bare)
    print(f"entry_points()           {seconds(bare) * 1000:7.1f} ms")
    print(f"listing every kind       {seconds(listing) * 1000:7.1f} ms   {times:.2f} times that, at most {MOST_TIMES} is allowed")
    print(
        f"lagent plugins           {command * 1000:7.1f} ms   at most {MOST_SECONDS * 1000:.0f} is allowed ({wall * 1000:.1f} ms by the clock)"
    )
    print(f"imported by listing {listing['found']} components: {listing['imported'] or 'none'}; by getting one: {listing['got']}")
    clean = not listing["imported"] and listing["got"] == ["plugin_0"]
    return 0 if times <= MOST_TIMES and command <= MOST_SECONDS and clean else 1


def install(folder: Path) -> None:
    """Lay out the distributions."""
    readme = "A line of a long description, of which there are many.\n" * 200
    for number in range(DISTRIBUTIONS):
        name = f"plugin_{number}" if number < PLUGINS else f"library_{number}"
        info = folder / f"{name}-1.{number}.dist-info"
        info.mkdir()
        header = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.{number}\nSummary: Number {number}\n"
        (info / "METADATA").write_text(header + "Requires-Dist: attrs\n" * 5 + "\n" + readme)
        (info / "RECORD").write_text(f"{name}.py,,\n")
        if number < PLUGINS:
            groups = [f"[lagent.{kind}]\n{kind}-{number} = {name}:Component\n" for kind in KINDS]
            extra = f"good = {name}:Component\n" if number == 0 else f"other-{number} = {name}:Component\n"
            (info / "entry_points.txt").write_text(
                f"[lagent.plugin_api]\n1 = {name}\n" + "".join([groups[0] + extra, *groups[1:]])
            )
            (folder / f"{name}.py").write_text("class Component: ...\n" if number == 0 else "raise RuntimeError('imported')\n")
        elif number % 4 == 0:
            (info / "entry_points.txt").write_text(f"[console_scripts]\n{name} = {name}:main\n")


def run(program: str, folder: str) -> dict[str, object]:
    """What a program prints in a fresh interpreter that finds the distributions."""
    done = subprocess.run([sys.executable, "-c", program], env=environment(folder), capture_output=True, text=True, check=True)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def cost(command: list[str], folder: str) -> tuple[float, float]:
    """Seconds of processor time, and by the clock, that a command takes."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, env=environment(folder), stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, time.perf_counter() - start


def environment(folder: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": folder}


def seconds(result: dict[str, object]) -> float:
    return float(str(result["seconds"]))


if __name__ == "__main__":
    sys.exit(main())
