"""lagent's own tool parsers."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.errors import ConfigurationError
from lagent.prompts.parsers import ToolStatusCode, error_of
from lagent.testing import ParserTests
from lagent_parsers.tool import InterpreterParser, MixedToolParser, PluginParser, ToolParser

CODE = ToolParser(tool_type="code interpreter", begin="```python\n", end="\n```\n")
CALL = '{"name": "search", "parameters": {"query": "天气"}}'


class TestToolParser(ParserTests):
    samples: ClassVar = ("Let me compute.\n```python\nprint(1)\n```\n", "No code here.")

    @pytest.fixture
    def parser(self) -> Any:
        return CODE


class TestPluginParser(ParserTests):
    samples: ClassVar = (f"thinking<|action_start|><|plugin|>\n{CALL}<|action_end|>\n", "No call.")
    malformed: ClassVar = ("<|action_start|><|plugin|>\nsearch the web<|action_end|>\n",)

    @pytest.fixture
    def parser(self) -> Any:
        return PluginParser()


class TestMixedToolParser(ParserTests):
    samples: ClassVar = (
        f"a<|action_start|><|plugin|>\n{CALL}<|action_end|>\n",
        "b<|action_start|><|interpreter|>\n1 + 1<|action_end|>\n",
        "Neither.",
    )

    @pytest.fixture
    def parser(self) -> Any:
        return MixedToolParser(parsers=[PluginParser(), InterpreterParser()])


def test_the_example_of_lagents_readme() -> None:
    text = "Python代码实现：\n\n```python\nresult = 63 * -63\nprint(result)"  # the stop word is not part of the text
    assert CODE.parse_response(text) == {
        "tool_type": "code interpreter",
        "thought": "Python代码实现：\n\n",
        "action": "result = 63 * -63\nprint(result)",
        "status": ToolStatusCode.VALID_TOOL,
    }


def test_a_second_begin_marker_belongs_to_the_action() -> None:
    parser = ToolParser("t", begin="<tool>", end="</tool>")
    assert parser.parse_response("a<tool>print('<tool>')</tool>b")["action"] == "print('<tool>')"


@pytest.mark.parametrize("text", ["x```python\n1\n```\n", "x```python\n1\n```", "x```python\n1\n```\ntail", "x```python\n1"])
def test_the_action_ends_with_its_marker_whole_or_without_its_line_break(text: str) -> None:
    assert CODE.parse_response(text)["action"] == "1"


def test_a_plugin_is_read_as_json_or_reported() -> None:
    parser = PluginParser()
    read = parser.parse_response(f"t<|action_start|><|plugin|>\n{CALL}<|action_end|>\n")
    assert read["action"] == json.loads(CALL)
    for bad in ("search", "{oops}", "[" * 100_000):
        read = parser.parse_response(f"t<|action_start|><|plugin|>\n{bad}")
        assert (read["status"], read["action"]) == (ToolStatusCode.PARSING_ERROR, bad)
        assert error_of(read)


def test_mixed_takes_the_tool_that_comes_first_in_the_text() -> None:
    parser = MixedToolParser("tools", "Use tools.", [{"type": "plugin", "template": "P"}, {"type": "interpreter"}])
    text = f"a<|action_start|><|interpreter|>\nx = 1<|action_end|>\n<|action_start|><|plugin|>\n{CALL}<|action_end|>\n"
    read = parser.parse_response(text)
    assert (read["tool_type"], read["thought"], read["action"]) == ("interpreter", "a", "x = 1")
    assert parser.format_response(read) == "a<|action_start|><|interpreter|>\nx = 1<|action_end|>\n"
    assert parser.format_instruction() == [
        {"role": "system", "content": "Use tools.", "name": "tools"},
        {"role": "system", "content": "P", "name": "plugin"},
    ]
    with pytest.raises(ValueError, match="no parser for 'browser', only for plugin, interpreter"):
        parser.format_response(read | {"tool_type": "browser"})


@given(st.text(), st.one_of(st.text(), st.dictionaries(st.text(), st.integers())))
def test_what_is_written_is_read(thought: str, action: Any) -> None:
    validate = json.loads if isinstance(action, dict) else None
    parser = ToolParser("t", begin="<|begin|>", end="<|end|>", validate=validate)
    parsed = {"tool_type": "t", "thought": thought, "action": action, "status": ToolStatusCode.VALID_TOOL}
    assert parser.parse_response(parser.format_response(parsed)) == parsed


def test_bad_arguments_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="begin marker of the tool parser 't' is empty"):
        ToolParser("t", begin="")
    with pytest.raises(ConfigurationError, match=r"validate of the tool parser 't' has to be a function, not 'os.system'"):
        ToolParser("t", validate="os.system")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="given to the parser of 'code interpreter'"):
        CODE.format_response({"tool_type": "other", "thought": "", "action": "1", "status": 1})
