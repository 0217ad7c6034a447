"""Runs the tests in ``in_process/`` inside an environment that has vLLM.

``LAGENT_VLLM_PYTHON`` names its interpreter; ``tests/engines/setup`` makes one for the CPU, with the model beside it. On a machine with a GPU,
``LAGENT_VLLM_MODEL`` names a model, and ``-m gpu`` runs the same tests with the settings of vLLM.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lagent_engines.environments import check_tests_in, engine_python, small_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

HERE = Path(__file__).parent


def run(name: str, **variables: str) -> None:
    python = engine_python("vllm")
    if python is None:
        pytest.skip("LAGENT_VLLM_PYTHON does not name the interpreter of an environment with vLLM")
    variables = {"LAGENT_VLLM_MODEL": os.environ.get("LAGENT_VLLM_MODEL", small_model(python)), **variables}
    check_tests_in(python, HERE / "in_process" / name, HERE.parents[1], variables)


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
