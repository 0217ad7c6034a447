"""What the README promises of the default model, held by the benchmark that anybody can run."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lagent_llamacpp import LlamaCppModel

BENCHMARK = Path(__file__).resolve().parents[3] / "bench" / "embedded_accuracy.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("embedded_accuracy", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.engine
def test_arithmetic(benchmark: ModuleType, llm: LlamaCppModel) -> None:
    rows = benchmark.arithmetic(llm)
    assert sum(row.right_call for row in rows) >= benchmark.RIGHT_CALLS, rows
    assert sum(row.right_answer for row in rows) >= benchmark.RIGHT_ANSWERS, rows


@pytest.mark.engine
def test_choice_of_three_actions(benchmark: ModuleType, llm: LlamaCppModel) -> None:
    rows = benchmark.choices(llm)
    assert sum(row.right_call for row in rows) >= benchmark.RIGHT_CHOICES, rows


def test_the_questions_are_in_no_example(benchmark: ModuleType) -> None:
    shown = str([benchmark.Calculator.examples, benchmark.Weather.examples, benchmark.Convert.examples])
    for question in [*(f"What is {expression}?" for expression in benchmark.ARITHMETIC), *benchmark.CHOICES]:
        assert question not in shown
    numbers = {
        number for question in [*benchmark.ARITHMETIC, *benchmark.CHOICES] for number in benchmark.NUMBER.findall(question)
    }
    assert numbers.isdisjoint(benchmark.NUMBER.findall(shown))
