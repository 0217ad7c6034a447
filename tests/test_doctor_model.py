"""``lagent doctor --model``: whether the parser for a model reads what its chat template writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lagent.cli import main

TEMPLATE = """{%- if tools %}Tools: {{ tools | tojson }}
Answer with <tool_call>{"name": <name>, "arguments": <arguments>}</tool_call>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_a_template_and_the_parser_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    assert main(["doctor", "--model", str(tmp_path), "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert (checked["parser"], checked["problems"]) == ({"type": "hermes"}, [])

    (tmp_path / "chat_template.jinja").write_text(TEMPLATE.replace("{{ call.function.name }}", "other"))
    assert main(["doctor", "--model", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert 'output_format = { type = "hermes" }' in out
    assert "error: " in out


def test_what_is_missing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["doctor", "--model", str(tmp_path / "nowhere")]) == 2
    assert "there is no chat template in" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "lagent_parsers.detect", None)
    assert main(["doctor", "--model", str(tmp_path)]) == 2
    assert "pip install 'lagent-parsers[templates]'" in capsys.readouterr().err
