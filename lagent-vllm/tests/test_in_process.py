"""Runs the tests in ``in_process/`` inside an environment that has vLLM.

``LAGENT_VLLM_PYTHON`` names its interpreter; ``tests/engines/setup`` makes one for the CPU, with the model beside it. On a machine with a GPU,
``LAGENT_VLLM_MODEL`` names a model, and ``-m gpu`` runs the same tests with the settings of vLLM.
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
assert python == f"{sys.version_info.major}.{sys.version_info.minor}", f"the tests run on Python {python}: so must vLLM"
site.addsitedir(packages)  # behind the engine's own packages: the project, pytest, and what they need
import pytest
sys.exit(pytest.main(arguments))
"""


def run(name: str, **variables: str) -> None:
    if "LAGENT_VLLM_PYTHON" not in os.environ:
        pytest.skip("LAGENT_VLLM_PYTHON does not name the interpreter of an environment with vLLM")
    python = Path(os.environ["LAGENT_VLLM_PYTHON"])
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    # The packages of the engine warn about each other.
    arguments += ["-o", "filterwarnings=ignore\nerror:::lagent", str(Path(__file__).parent / "in_process" / name)]
    done = subprocess.run(
        [str(python), "-c", RUN, sysconfig.get_path("purelib"), sysconfig.get_python_version(), *arguments],
        env={"LAGENT_VLLM_MODEL": str(python.parents[2] / "smollm2-hf"), **os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:]


CPU = {"LAGENT_VLLM_DEVICE": "cpu", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}


def test_sync_on_the_cpu() -> None:
    # Without a process of its own, the engine starts in seconds.
    run("sync", **CPU, VLLM_ENABLE_V1_MULTIPROCESSING="0")


def test_async_on_the_cpu() -> None:
    run("asynchronous", **CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["sync", "asynchronous"])
def test_on_a_gpu(name: str) -> None:
    run(name, LAGENT_VLLM_DEVICE="gpu")
