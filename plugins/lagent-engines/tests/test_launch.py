"""What is known of a model before its server runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lagent.errors import ModelConfigurationError
from lagent_engines.launch import EngineParsers, ModelFiles, flags
from lagent_parsers.templates import Template

HERMES = Template('{% if tools %}<tool_call>\n{"name": 1}\n</tool_call>{% endif %}{{ messages[0].content }}')
THINKING = Template(HERMES.source + "{% if add_generation_prompt %}<think>{% endif %}")
HYBRID = Template(HERMES.source + "{{ messages[0].content.split('<think>') }}")
PLAIN = Template("{{ messages[0].content }}")
PARSERS = EngineParsers({"hermes": "its_hermes"}, {"think": "its_think", "think started": "its_r1", "harmony": "its_harmony"})


@pytest.mark.parametrize("negative", [True, False])
def test_flags(negative: bool) -> None:
    options = {
        "max_model_len": 3,
        "eager": True,
        "caching": False,
        "left_out": None,
        "modules": ["a=b", "c=d"],
        "config": {"a": [1]},
    }
    off = ["--no-caching"] if negative else []
    expected = ["--max-model-len", "3", "--eager", *off, "--modules", "a=b", "c=d", "--config", '{"a": [1]}']
    assert flags(options, negative=negative) == expected


@pytest.mark.parametrize(
    ("template", "chosen"),
    [
        (None, (None, None)),
        (PLAIN, (None, None)),
        (HERMES, ("its_hermes", None)),
        (HYBRID, ("its_hermes", "its_think")),
        (THINKING, ("its_hermes", "its_r1")),
        (Template("<|channel|>analysis<|message|>"), (None, "its_harmony")),
        (Template("[TOOL_CALLS]"), (None, None)),
    ],
)
def test_parsers_by_template(template: Template | None, chosen: tuple[str | None, str | None]) -> None:
    assert PARSERS.choose(template, "auto", "auto") == chosen


def test_parsers_by_name() -> None:
    assert PARSERS.choose(THINKING, None, None) == (None, None)
    assert PARSERS.choose(PLAIN, "hermes", "think") == ("its_hermes", "its_think")
    assert PARSERS.choose(PLAIN, "another", "of_its_own") == ("another", "of_its_own")


def test_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 3}))
    assert ModelFiles.of(str(tmp_path)) == ModelFiles(None, images=False)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    files = ModelFiles.of(str(tmp_path))
    assert files.template is not None
    assert files.template.source == "{{ messages }}"
    given = ModelFiles.of(str(tmp_path), "another").template
    assert given is not None
    assert given.source == "another"


def test_images(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vision_config": {}}))
    assert ModelFiles.of(str(tmp_path)).images


@pytest.mark.parametrize("path", ["/no/such/folder", "./model", "~/model", "a/b/c", __file__])
def test_folder_that_does_not_exist(path: str) -> None:
    with pytest.raises(ModelConfigurationError, match="there is no model at"):
        ModelFiles.of(path)


def test_name_of_a_hub_that_is_not_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert ModelFiles.of("no-such-owner/no-such-model") == ModelFiles(None, images=True)
