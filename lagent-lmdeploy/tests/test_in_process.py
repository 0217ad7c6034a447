"""Runs the tests in ``in_process/`` inside an environment that has LMDeploy.

``LAGENT_LMDEPLOY_PYTHON`` names its interpreter; ``tests/engines/setup`` makes one for the CPU, with the model beside it. On a machine with
a GPU and a stock LMDeploy, ``LAGENT_LMDEPLOY_MODEL`` names a model, and ``-m gpu`` runs the same tests on turbomind and on the stock
PyTorch engine.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
RUN = """
import site, sys
packages, python, *arguments = sys.argv[1:]
assert python == f"{sys.version_info.major}.{sys.version_info.minor}", f"the tests run on Python {python}: so must LMDeploy"
site.addsitedir(packages)  # behind the engine's own packages: the project, pytest, and what they need
import pytest
sys.exit(pytest.main(arguments))
"""


def run(**variables: str) -> None:
    if "LAGENT_LMDEPLOY_PYTHON" not in os.environ:
        pytest.skip("LAGENT_LMDEPLOY_PYTHON does not name the interpreter of an environment with LMDeploy")
    python = Path(os.environ["LAGENT_LMDEPLOY_PYTHON"])
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    # The packages of the engine warn about each other.
    arguments += ["-o", "filterwarnings=ignore\nerror:::lagent", str(Path(__file__).parent / "in_process")]
    done = subprocess.run(
        [str(python), "-c", RUN, sysconfig.get_path("purelib"), sysconfig.get_python_version(), *arguments],
        env={"LAGENT_LMDEPLOY_MODEL": str(python.parents[2] / "smollm2-hf"), **os.environ, "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:]


def test_on_the_cpu() -> None:
    run(LAGENT_LMDEPLOY_BACKEND="shim")


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["turbomind", "pytorch"])
def test_on_a_gpu(backend: str) -> None:
    run(LAGENT_LMDEPLOY_BACKEND=backend)
