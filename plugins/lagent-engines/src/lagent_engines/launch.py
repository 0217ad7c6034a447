"""What has to be known of a model before the server that serves it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from lagent.errors import ConfigurationError, ModelConfigurationError
from lagent_engines.parsers import detected
from lagent_parsers.templates import Template, template_in, template_of

__all__ = ["EngineParsers", "Launch", "ModelFiles", "flags"]

_FILES = ["config.json", "tokenizer_config.json", "chat_template*"]


@frozen
class ModelFiles:
    """What the small files of a model say.

    Attributes:
        template: its chat template, or the one to use instead; ``None`` where there is none, or none was found.
        images: whether it takes images; ``True`` where its configuration was not found.
    """

    template: Template | None
    images: bool

    @classmethod
    def of(cls, path: str, chat_template: str | None = None) -> ModelFiles:
        """Read the files of a model: a folder, or a name on the Hugging Face Hub, which takes ``huggingface_hub``.

        Args:
            chat_template: a chat template (Jinja) instead of the model's own.

        Raises:
            ModelConfigurationError: ``path`` looks like a folder and is none.
        """
        folder = _folder(path)
        template = template_of(chat_template) if chat_template is not None else None
        if folder is None:
            return cls(template, True)
        if template is None:
            try:
                template = template_in(folder)
            except ConfigurationError:
                template = None
        config = folder / "config.json"
        settings = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {"vision_config": {}}
        return cls(template, any("vision" in name or name == "image_token_id" for name in settings))


def _folder(path: str) -> Path | None:
    if (folder := Path(path).expanduser()).is_dir():
        return folder
    if path.startswith(("/", ".", "~")) or path.count("/") > 1 or folder.exists():
        raise ModelConfigurationError(f"there is no model at {path!r}: it has to be a folder, or a name such as 'owner/model'")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        return None
    try:
        return Path(snapshot_download(path, allow_patterns=_FILES))
    except Exception:  # the server will say what is wrong with the name, or have another source of models
        return None


@frozen
class EngineParsers:
    """The parsers that an engine's server has, by the names that lagent-parsers has for the same.

    Attributes:
        tools: by dialect of tool calls.
        reasoning: by dialect of tool calls, where the dialect settles it, and by style of reasoning; a name that ends in ``" started"``
            is for templates that begin the reasoning themselves.
    """

    tools: Mapping[str, str]
    reasoning: Mapping[str, str]

    def choose(
        self, template: Template | None, tool_parser: str | None, reasoning_parser: str | None
    ) -> tuple[str | None, str | None]:
        """The engine's names of the two parsers for a model; ``None`` where there is none.

        Args:
            tool_parser, reasoning_parser: ``"auto"`` tells by the template; ``None`` does without; else a name of lagent-parsers, or one
                that the engine knows.
        """
        found = detected(template.source if template is not None else None)
        dialect, style = found.get("type"), found.get("reasoning")
        if tool_parser == "auto":
            tools = self.tools.get(str(dialect))
        else:
            tools = self.tools.get(tool_parser, tool_parser) if tool_parser is not None else None
        if reasoning_parser != "auto":
            return tools, self.reasoning.get(reasoning_parser, reasoning_parser) if reasoning_parser is not None else None
        if style is None and dialect != "harmony":
            return tools, None
        names = [str(dialect), f"{style} started" if found.get("reasoning_started") else str(style), str(style)]
        return tools, next((self.reasoning[name] for name in names if name in self.reasoning), None)


@frozen
class Launch:
    """What a server is to serve.

    Attributes:
        path, name: the model, and what the server is to call it.
        host: where it is to listen.
        chat_template: a chat template (Jinja) instead of the model's own.
        tool_parser, reasoning_parser: the engine's names of the parsers, if there are any.
        options: the engine's options by name.
    """

    path: str
    name: str
    host: str
    chat_template: str | None
    tool_parser: str | None
    reasoning_parser: str | None
    options: Mapping[str, Any]


def flags(options: Mapping[str, Any], *, negative: bool) -> list[str]:
    """Command-line options of names and values: ``{"max_model_len": 2048}`` is ``--max-model-len 2048``.

    Args:
        options: ``True`` is the option alone, a list several values, a table JSON; ``None`` leaves the option out.
        negative: whether ``False`` is ``--no-option``, as for ``argparse.BooleanOptionalAction``; otherwise it leaves the option out.
    """
    command = []
    for name, value in options.items():
        option = name.replace("_", "-")
        if value is True:
            command.append(f"--{option}")
        elif value is False:
            command += [f"--no-{option}"] if negative else []
        elif isinstance(value, (list, tuple)):
            command += [f"--{option}", *map(str, value)]
        elif value is not None:
            command += [f"--{option}", json.dumps(value) if isinstance(value, Mapping) else str(value)]
    return command
