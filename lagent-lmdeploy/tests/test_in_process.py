"""LMDeploy in process, in an environment that has it: the tests in ``in_process/``, the examples, and programs that just end.

``LAGENT_LMDEPLOY_PYTHON`` names its interpreter; ``tests/engines/setup`` makes one for the CPU, with the model beside it. On a machine with
a GPU and a stock LMDeploy, ``LAGENT_LMDEPLOY_MODEL`` names a model, and ``-m gpu`` runs the same tests on turbomind and on the stock
PyTorch engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lagent_engines.environments import check_tests_in, engine_python, output_in, small_model

from .test_server import SHIM

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def python() -> Path:
    if (python := engine_python("lmdeploy")) is None:
        pytest.skip("LAGENT_LMDEPLOY_PYTHON does not name the interpreter of an environment with LMDeploy")
    return python


@pytest.fixture
def model(python: Path) -> str:
    return os.environ.get("LAGENT_LMDEPLOY_MODEL") or small_model(python)


@pytest.mark.parametrize("backend", ["shim", *(pytest.param(each, marks=pytest.mark.gpu) for each in ("turbomind", "pytorch"))])
def test_in_process(python: Path, model: str, backend: str) -> None:
    variables = {"LAGENT_LMDEPLOY_BACKEND": backend, "LAGENT_LMDEPLOY_MODEL": model, "OMP_NUM_THREADS": "1"}
    check_tests_in(python, Path(__file__).with_name("in_process"), ROOT, variables)


@pytest.fixture(params=["shim", pytest.param("stock", marks=pytest.mark.gpu)])
def run(request: pytest.FixtureRequest, python: Path, model: str) -> Callable[..., str]:
    """Runs a script with the model and gives what it prints."""
    if request.param == "stock":
        return lambda script, *arguments: output_in(python, script, model, *arguments)
    start = "import lmdeploy_cpu; lmdeploy_cpu.install()"
    return lambda script, *arguments: output_in(python, script, model, *arguments, start=start, variables=SHIM)


@pytest.mark.parametrize("name", ["run_agent_lmdeploy.py", "run_async_agent_lmdeploy.py"])
def test_examples(run: Callable[..., str], name: str) -> None:
    printed = run(ROOT / "lagent-lmdeploy" / "examples" / name, "--max-new-tokens", "6")
    assert "interpreter" in printed
    assert "time elapsed" in printed


def test_a_program_may_end_while_the_engine_answers(run: Callable[..., str], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from lagent_lmdeploy import LMDeployPipeline\n"
        "model = LMDeployPipeline(sys.argv[1], pipeline_cfg={'session_len': 1024})\n"
        "stream = model.stream_chat([{'role': 'user', 'content': 'Hello'}], max_new_tokens=500, ignore_eos=True)\n"
        "print(type(next(stream)).__name__)\n"
    )
    printed = run(script)
    assert "ModelChunk\n" in printed
    assert "ERROR" not in printed
    assert "Failed" not in printed
