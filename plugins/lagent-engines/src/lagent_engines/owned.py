"""The base of models that start the server of an engine."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import attrs

from lagent.errors import ModelConfigurationError
from lagent.llms import check_template
from lagent_engines.launch import EngineParsers, Launch, ModelFiles
from lagent_engines.served import ServedModel
from lagent_engines.server import ServerProcess, Symptom

__all__ = ["OwnedModel"]


class OwnedModel(ServedModel):
    """A model whose server this object starts and owns, unless it is to use one that runs.

    The server takes calls from this machine only, and only with its key. It never outlives this process; see :class:`ServerProcess`.

    Args:
        path: the model's folder or name.
        engine_options: the engine's options by name; those that are ``None`` are left to it.
        model_name: the model's name at the server; by default, ``path``.
        url: the root URL of a running server, ``http://host:port``, to use instead.
        host, port: where the server listens; without a port, at a free one.
        key: the server's key; a random one by default.
        python: the interpreter of the environment that has the engine; by default, the one that runs.
        environment: environment variables of the server beside those of this process.
        log: the file for the server's output; without it, a temporary one, which is kept where the server failed.
        start_timeout: seconds that the server may take to be ready.
        tool_parser: the dialect in which the model writes tool calls, by its name in lagent-parsers or at the engine; ``"auto"`` tells by
            the chat template; ``None`` leaves them in the text, so that the model takes no ``tools``.
        reasoning_parser: the style of the model's reasoning likewise.
        chat_template: a chat template (Jinja) instead of the model's own.
        on_template_mismatch: what a difference between a ``meta_template`` and the model's own template leads to.
        load: when the server starts.
        options: see :class:`ServedModel`.

    Raises:
        ModelConfigurationError: there is no such model, or an argument cannot be used.
    """

    parsers: ClassVar[EngineParsers]
    symptoms: ClassVar[Sequence[Symptom]]
    port_option: ClassVar[str]

    def __init__(
        self,
        path: str,
        engine_options: Mapping[str, Any],
        *,
        model_name: str | None = None,
        url: str | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        key: str | None = None,
        python: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        log: str | os.PathLike[str] | None = None,
        start_timeout: float = 1800.0,
        tool_parser: str | None = "auto",
        reasoning_parser: str | None = "auto",
        chat_template: str | None = None,
        on_template_mismatch: Literal["error", "warn", "ignore"] = "warn",
        load: Literal["first use", "now"] = "first use",
        **options: Any,
    ) -> None:
        if load not in ("first use", "now"):
            raise ModelConfigurationError(f"load must be 'first use' or 'now', not {load!r}")
        model_name = model_name or path
        if url is not None:
            own = {"port": port, "python": python, "environment": environment, "log": log, "chat_template": chat_template}
            parsers = {"tool_parser": tool_parser, "reasoning_parser": reasoning_parser}
            asked = {**own, **engine_options, **{name: value for name, value in parsers.items() if value != "auto"}}
            if given := [name for name, value in asked.items() if value is not None]:
                raise ModelConfigurationError(f"the server at {url} runs already: {', '.join(given)} cannot be chosen any more")
            super().__init__(model_name, url=url, key=key, **options)
            return
        files = ModelFiles.of(path, chat_template)
        self._files = files
        tools, reasoning = self.parsers.choose(files.template, tool_parser, reasoning_parser)
        key = key or secrets.token_hex(24)
        launch = Launch(path, model_name, host, chat_template, tools, reasoning, engine_options)
        command = [str(python or sys.executable), *self._command(launch), self.port_option]
        server = ServerProcess(
            f"{self.engine}-server",
            lambda port: [*command, str(port)],
            host=host,
            port=port,
            environment={**self._environment(key), **(environment or {})},
            log=log,
            start_timeout=start_timeout,
            symptoms=self.symptoms,
        )
        super().__init__(model_name, server=server, key=key, **options)
        self.capabilities = attrs.evolve(
            self.capabilities, tools=tools is not None, images=files.images, reasoning=reasoning is not None
        )
        if self.meta_template and (template := files.template) is not None:
            check_template(
                self.template_parser,
                lambda messages: template.render(messages, prompt=True),
                on_mismatch=on_template_mismatch,
            )
        if load == "now":
            self._connect()

    # For subclasses

    def _command(self, launch: Launch) -> list[str]:
        """What follows the interpreter in the command that starts the server, but for the port.

        Raises:
            ModelConfigurationError: the server cannot do what ``launch`` asks.
        """
        raise NotImplementedError

    def _environment(self, key: str) -> dict[str, str]:
        """Environment variables that tell the server its key, which would be seen by all in its command."""
        raise NotImplementedError

    @property
    def chat_template(self) -> str | None:
        """The chat template that the model uses, if it was found: its own, or the one given."""
        template = self._files.template if self.server is not None else None
        return template.source if template is not None else None
