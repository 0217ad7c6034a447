"""Chat templates: where they are, and what they write."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from lagent.errors import ConfigurationError

__all__ = ["Template", "template_in", "template_of"]

Message = Mapping[str, Any]


@frozen
class Template:
    """A model's chat template.

    Attributes:
        source: the Jinja template.
        tokens: the special tokens that it may name, such as ``bos_token``.
    """

    source: str
    tokens: Mapping[str, str] = {}

    def render(self, messages: Sequence[Message], tools: Sequence[Message] | None = None, prompt: bool = False) -> str:
        """The text for ``messages``.

        Args:
            prompt: whether the beginning of the model's answer is written as well.

        Raises:
            ImportError: jinja2 is not installed.
            ConfigurationError: the template fails, or refuses the messages.
        """
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise TemplateError(message)

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": refuse, "strftime_now": lambda form: "2026-01-01"}
        try:
            template = environment.from_string(self.source)
            return template.render(messages=messages, tools=tools, add_generation_prompt=prompt, **self.tokens)
        except Exception as error:  # a template is a program, and may fail in any way
            raise ConfigurationError(f"the chat template fails: {type(error).__name__}: {error}") from error

    def begins_with(self, open_: str, close: str) -> bool:
        """Whether the prompt ends in ``open_``, not followed by ``close``: whether the template begins the reasoning."""
        try:
            prompt = self.render([{"role": "user", "content": "?"}], prompt=True)
        except (ImportError, ConfigurationError):
            prompt = self.source.rpartition("add_generation_prompt")[2].replace("\\n", "\n")
            return prompt.rfind(open_) > prompt.rfind(close)
        return prompt.rstrip().endswith(open_.strip())


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def template_of(chat_template: Any, tokenizer: Any = None) -> Template:
    """The template that a user gave, or a tokenizer has; of several, the one for tools.

    Raises:
        ConfigurationError: there is none.
    """
    chosen = chat_template if chat_template is not None else getattr(tokenizer, "chat_template", None)
    if isinstance(chosen, (list, tuple)):
        chosen = {each["name"]: each["template"] for each in chosen}
    if isinstance(chosen, Mapping):
        chosen = chosen.get("tool_use") or chosen.get("default")
    if not isinstance(chosen, str) or not chosen.strip():
        raise ConfigurationError("there is no chat template: pass the text of the model's template")
    names = ("bos_token", "eos_token")
    return Template(chosen, {name: str(getattr(tokenizer, name, None) or "") for name in names})


def template_in(path: str | os.PathLike[str]) -> Template:
    """The template of a model on disk: a folder with ``chat_template.jinja`` or ``tokenizer_config.json``, or a template file.

    Raises:
        ConfigurationError: there is none.
    """
    path = Path(path)
    if path.is_file():
        return template_of(path.read_text(encoding="utf-8"))
    settings: dict[str, Any] = {}
    if (config := path / "tokenizer_config.json").is_file():
        settings = json.loads(config.read_text(encoding="utf-8"))
    chosen = (path / "chat_template.jinja").read_text(encoding="utf-8") if (path / "chat_template.jinja").is_file() else None
    if chosen is None and not settings.get("chat_template"):
        raise ConfigurationError(
            f"there is no chat template in {path}: it has no chat_template.jinja and no tokenizer_config.json with one"
        )
    found = template_of(chosen if chosen is not None else settings["chat_template"])
    tokens = {name: _token(settings.get(name)) for name in ("bos_token", "eos_token")}
    return Template(found.source, tokens)


def _token(value: Any) -> str:
    return str(value["content"] if isinstance(value, Mapping) else value or "")
