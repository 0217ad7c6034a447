"""Telling the parser by a chat template. The templates are written for these tests in the manner of the models'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lagent import registry
from lagent.errors import ConfigurationError
from lagent.registry import create
from lagent_parsers import check_model_template, detect
from lagent_parsers.detect import _SIGNS, check_template
from lagent_parsers.dialects import HermesParser
from lagent_parsers.templates import Template

TURNS = """\
{%- if tools %}{{ '<|im_start|>system\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}CALL{% endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\nPROMPT' }}{% endif %}"""


def template(call: str, prompt: str = "") -> str:
    return TURNS.replace("CALL", call).replace("PROMPT", prompt)


HERMES = template(
    """{{ '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}{{ call.function.arguments | tojson }}{{ '}\n</tool_call>' }}"""
)
QWEN = template(
    "{{ '\n<tool_call>\n<function=' + call.function.name + '>\n' }}{% for key, value in call.function.arguments.items() %}"
    "{{ '<parameter=' + key + '>\n' }}{{ value if value is string else value | tojson }}{{ '\n</parameter>\n' }}{% endfor %}"
    "{{ '</function>\n</tool_call>' }}"
)
MISTRAL = """\
{%- for message in messages %}
{%- if message.role == 'user' %}{{ '[INST]' + message.content + '[/INST]' }}
{%- elif message.tool_calls %}
    {%- for call in message.tool_calls %}
        {%- if call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}
        {{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' }}{{ call.function.arguments | tojson }}
    {%- endfor %}{{ eos_token }}
{%- else %}{{ message.content + eos_token }}{% endif %}
{%- endfor %}"""
KIMI = template(
    "{{ '<|tool_calls_section_begin|><|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' }}{{ call.function.arguments | tojson }}"
    "{{ '<|tool_call_end|><|tool_calls_section_end|>' }}"
)
LLAMA = template(
    "{% if message.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    """{{ '<|python_tag|>{"name": "' + call.function.name + '", "parameters": ' }}{{ call.function.arguments | tojson }}{{ '}' }}"""
)
KNOWN = {
    "hermes": (HERMES, {"type": "hermes"}),
    "hermes that thinks": (HERMES.replace("PROMPT", "<think>\n"), {"type": "hermes"}),
    "qwen3-coder": (QWEN, {"type": "qwen3-coder"}),
    "mistral": (MISTRAL, {"type": "mistral"}),
    "kimi": (KIMI, {"type": "kimi-k2"}),
    "llama": (LLAMA, {"type": "llama3-json"}),
}


@pytest.mark.parametrize(("source", "expected"), KNOWN.values(), ids=list(KNOWN))
def test_what_the_template_writes_the_parser_reads(source: str, expected: dict[str, Any]) -> None:
    assert detect(source) == expected
    check = check_template(Template(source, {"eos_token": "</s>"}))
    assert (check.parser, check.problems) == (expected, [])
    assert "get_weather" in check.written


def test_reasoning_and_whether_the_template_begins_it() -> None:
    assert detect(template("", "<think>\\n")) == {"type": "reasoning", "reasoning": "think", "reasoning_started": True}
    assert detect(template("", "<think>\\n\\n</think>\\n")) == {"type": "reasoning", "reasoning": "think"}
    switch = "' + ('' if enable_thinking is defined else '<think>\\n') + '"
    assert detect(template("", switch))["reasoning_started"] is True


def test_without_jinja2_the_text_of_the_template_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    assert detect(template("", "<think>\\n")) == {"type": "reasoning", "reasoning": "think", "reasoning_started": True}
    assert detect(template("", "<think>\\n\\n</think>\\n")) == {"type": "reasoning", "reasoning": "think"}
    with pytest.raises(ImportError, match="jinja2"):
        check_template(Template(HERMES))


def test_an_unknown_template_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"shows no tool-call dialect and no reasoning .* one of harmony, kimi-k2"):
        detect(template("call {{ call.function.name }}"))
    with pytest.raises(ConfigurationError, match="there is no chat template"):
        detect(None)


def test_every_dialect_that_is_detected_can_be_had() -> None:
    assert {name for name, _ in _SIGNS} <= set(registry.names("parsers"))


def test_a_template_that_the_parser_cannot_read_is_reported() -> None:
    check = check_template(Template(HERMES.replace('"arguments": \'', '"arguments" = \'')), {"type": "hermes"})
    assert len(check.problems) == 1
    assert "'hermes' read [ToolCall(name='get_weather', arguments={}" in check.problems[0]
    refusing = check_template(Template("{{ raise_exception('no tools') }}<tool_call>{\"name\": }"), {"type": "hermes"})
    assert refusing.problems == ["the chat template fails: TemplateError: no tools"]


def test_a_tokenizer_may_hold_the_template_or_several() -> None:
    class Tokenizer:
        chat_template = [{"name": "default", "template": template("")}, {"name": "tool_use", "template": HERMES}]

    assert detect(None, Tokenizer()) == {"type": "hermes"}
    assert detect({"default": MISTRAL}) == {"type": "mistral"}


def test_auto_makes_the_parser() -> None:
    parser = create("parsers", {"type": "auto", "chat_template": HERMES, "reasoning": "think"})
    assert isinstance(parser, HermesParser)
    assert parser.parse_response("<think>a</think>b").reasoning == "a"


def test_the_template_of_a_model_on_disk(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": MISTRAL, "eos_token": {"content": "</s>"}, "bos_token": "<s>"}), encoding="utf-8"
    )
    assert check_model_template(tmp_path).parser == {"type": "mistral"}
    (tmp_path / "chat_template.jinja").write_text(HERMES, encoding="utf-8")
    assert check_model_template(tmp_path).parser == {"type": "hermes"}
    assert check_model_template(tmp_path / "chat_template.jinja", {"type": "code-block"}).problems
    with pytest.raises(ConfigurationError, match=r"there is no chat template in .*: it has no chat_template\.jinja"):
        check_model_template(tmp_path.parent / "nothing")
