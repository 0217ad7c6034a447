"""Running this environment's code where an engine is installed.

Engines exclude each other and most of what else one installs, so their tests and benchmarks run in environments of their own, with the
packages of the environment that starts them behind those of the engine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["check_tests_in", "command_in", "engine_python", "output_in", "small_model"]

_START = """
import site, sys
_, version, packages, start, *sys.argv = sys.argv
here = f"{sys.version_info.major}.{sys.version_info.minor}"
if here != version:
    sys.exit(f"the environment of the engine has Python {here} and this one {version}: they have to be the same")
site.addsitedir(packages)
if start:
    exec(start)
import runpy
if sys.argv[0] == "-m":
    _, module, *_ = sys.argv
    del sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
else:
    sys.path.insert(0, sys.argv[0].rpartition("/")[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def engine_python(engine: str) -> Path | None:
    """The interpreter of an environment that has ``engine``: what ``LAGENT_<ENGINE>_PYTHON`` names, as ``tests/engines/setup`` prints it."""
    named = os.environ.get(f"LAGENT_{engine.upper()}_PYTHON")
    return Path(named) if named else None


def small_model(python: Path) -> str:
    """The folder of the small model that ``tests/engines/setup`` makes beside the environment."""
    return str(python.parents[2] / "smollm2-hf")


def command_in(python: Path, *arguments: str | Path, start: str = "") -> list[str]:
    """The command that runs Python there.

    Args:
        arguments: a script and its arguments, or ``-m``, a module and its arguments.
        start: code that runs before it.
    """
    version, packages = sysconfig.get_python_version(), sysconfig.get_path("purelib")
    return [str(python), "-c", _START, version, packages, start, *map(str, arguments)]


def output_in(python: Path, script: Path, *arguments: str, start: str = "", variables: Mapping[str, str] | None = None) -> str:
    """Run a script there and give what it prints.

    Raises:
        RuntimeError: it failed; holds all it wrote.
    """
    done = subprocess.run(
        command_in(python, script, *arguments, start=start),
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script.name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"[-20_000:])
    return done.stdout


def check_tests_in(python: Path, tests: Path, root: Path, variables: Mapping[str, str]) -> None:
    """Run the tests in a folder there, with the configuration of the project at ``root``.

    Raises:
        RuntimeError: one failed; holds the end of the report.
    """
    # The packages of an engine warn about each other.
    options: Sequence[str] = ("-o", "filterwarnings=ignore\nerror:::lagent", "-q", "-p", "no:cacheprovider")
    command = command_in(python, "-m", "pytest", "--rootdir", root, "-c", root / "pyproject.toml", *options, tests)
    done = subprocess.run(
        command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"tests in {tests.name} failed:\n{done.stdout[-20_000:]}")
    print(done.stdout[-2_000:], file=sys.stderr)
