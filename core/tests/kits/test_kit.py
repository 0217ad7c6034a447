"""What the conformance kits have in common: how they are used, and that their tests cannot be dropped in silence."""

from __future__ import annotations

import runpy

import pytest

from lagent import testing
from lagent.testing import ParserTests, overrides_kit
from lagent.testing.kit import check_linear

pytest_plugins = ["pytester"]

PLUGIN_TESTS = """
import pytest
from lagent.prompts.parsers import StrParser
from lagent.testing import ParserTests, overrides_kit

class Shouting(StrParser):
    def parse_response(self, data):
        return data.upper()

    def format_response(self, parsed):
        return "!" + parsed

class TestShouting(ParserTests):
    @pytest.fixture
    def parser(self):
        return Shouting()

    @overrides_kit("instructions are numbered")
    def test_instruction(self, parser):
        pass
"""


@pytest.fixture
def plugin(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    return pytester


def test_subclassing_a_kit_with_one_fixture_runs_all_of_it(plugin: pytest.Pytester) -> None:
    plugin.makepyfile(test_plugin=PLUGIN_TESTS)
    result = plugin.runpytest("-p", "no:cacheprovider")
    kit = [name for name in dir(ParserTests) if name.startswith("test_")]
    result.assert_outcomes(passed=len(kit) - 2, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*The answer is 42.*was written as*", "*FAILED*test_round_trip*"])


def test_forgotten_fixture_is_named(plugin: pytest.Pytester) -> None:
    plugin.makepyfile(test_plugin="from lagent.testing import ModelTests\nclass TestMine(ModelTests): pass")
    result = plugin.runpytest("-p", "no:cacheprovider", "-k", "test_chat")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*TestMine needs a fixture 'model' that returns the model to test*"])


@pytest.mark.parametrize("replacement", [lambda self, parser: None, None])
def test_replacing_a_test_without_a_reason_is_refused(replacement: object) -> None:
    with pytest.raises(TypeError, match=r"TestMine.test_round_trip replaces a test of ParserTests: .*@overrides_kit"):
        type("TestMine", (ParserTests,), {"test_round_trip": replacement})


def test_replacing_a_test_for_a_reason_is_allowed() -> None:
    test = overrides_kit("the dialect has two spellings")(lambda self, parser: None)
    assert issubclass(type("TestMine", (ParserTests,), {"test_round_trip": test, "test_more": lambda self: None}), ParserTests)


def test_a_reason_has_to_say_something() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        overrides_kit(" ")


def test_growth_is_told_from_noise() -> None:
    check_linear(lambda n: lambda: sum(range(n * 10)), "adding")
    with pytest.raises(AssertionError, match=r"adding takes .* times as long"):
        check_linear(lambda n: lambda: [sum(range(n)) for _ in range(n)], "adding", size=200)


def test_what_it_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "hypothesis" else object())
    with pytest.raises(ImportError, match=r"needs hypothesis: pip install 'lagent-core\[testing\]'"):
        runpy.run_path(str(testing.__file__))


def test_export_list() -> None:
    assert sorted(testing.__all__) == testing.__all__
    assert all(hasattr(testing, name) for name in testing.__all__)
