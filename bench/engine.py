"""Running a benchmark where an engine is installed."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from pathlib import Path

# Behind the engine's own packages, the project and what it needs.
_RUN = """
import runpy, site, sys
_, packages, *sys.argv = sys.argv
site.addsitedir(packages)
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def enter(engine: str) -> str:
    """Go on in an environment that has ``engine``: this one, or the one whose interpreter ``LAGENT_<ENGINE>_PYTHON`` names.

    ``tests/engines/setup`` makes such environments for the CPU.

    Returns:
        The path of the model: ``LAGENT_<ENGINE>_MODEL``, or the one that was made beside the environment.
    """
    name = f"LAGENT_{engine.upper()}"
    if importlib.util.find_spec(engine) is None:
        if f"{name}_PYTHON" not in os.environ:
            sys.exit(f"{engine} is not installed here; let {name}_PYTHON name the interpreter of an environment that has it")
        python = os.environ[f"{name}_PYTHON"]
        os.environ.setdefault(f"{name}_MODEL", str(Path(python).parents[2] / "smollm2-hf"))
        os.execv(python, [python, "-c", _RUN, sysconfig.get_path("purelib"), *sys.argv])
    if f"{name}_MODEL" not in os.environ:
        sys.exit(f"{name}_MODEL must name the folder of a model, or its name on the Hugging Face Hub")
    return os.environ[f"{name}_MODEL"]
