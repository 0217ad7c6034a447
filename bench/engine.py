"""Running a benchmark where an engine is installed."""

from __future__ import annotations

import importlib.util
import os
import sys

from lagent_engines.environments import command_in, engine_python, small_model


def enter(engine: str) -> str:
    """Go on in an environment that has ``engine``: this one, or the one whose interpreter ``LAGENT_<ENGINE>_PYTHON`` names.

    ``tests/engines/setup`` makes such environments for the CPU.

    Returns:
        The path of the model: ``LAGENT_<ENGINE>_MODEL``, or the one that was made beside the environment.
    """
    variable = f"LAGENT_{engine.upper()}_MODEL"
    if importlib.util.find_spec(engine) is None:
        python = engine_python(engine)
        if python is None:
            sys.exit(f"{engine} is not installed here; let LAGENT_{engine.upper()}_PYTHON name an interpreter that has it")
        os.environ.setdefault(variable, small_model(python))
        command = command_in(python, *sys.argv)
        os.execv(command[0], command)
    if variable not in os.environ:
        sys.exit(f"{variable} must name the folder of a model, or its name on the Hugging Face Hub")
    return os.environ[variable]
