"""LMDeploy's server: one that this process starts and owns, or a running one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar

import anyio
import attrs
import openai

from lagent.errors import EngineError, ModelConfigurationError
from lagent.llms import ModelRequest
from lagent.schema import ModelChunk, ModelResponse, ResponseBuilder
from lagent_engines.answers import Answer
from lagent_engines.launch import EngineParsers, Launch, flags
from lagent_engines.owned import OwnedModel
from lagent_engines.pieces import Piece
from lagent_engines.served import AsyncServedMixin, ServedModel
from lagent_engines.server import Symptom

__all__ = ["PARSERS", "SYMPTOMS", "AsyncLMDeployClient", "AsyncLMDeployServer", "LMDeployClient", "LMDeployServer"]

PARSERS = EngineParsers(
    tools={
        "deepseek-v3.2": "deepseek-v32",
        "glm-4.5": "glm47",
        "hermes": "qwen3",
        "internlm": "internlm",
        "kimi-k2": "kimi-k2",
        "llama3-json": "llama3",
        "qwen3-coder": "qwen3coder",
    },
    reasoning={"deepseek-v3.1": "deepseek-v3", "deepseek-v3.2": "deepseek-v32", "think": "default"},
)
"""LMDeploy's parsers: the folders ``tool_parser`` and ``reasoning_parser`` of ``lmdeploy/serve/parsers``."""

SYMPTOMS = (
    Symptom(
        r"error: (unrecognized arguments|argument|ambiguous option).*",
        "correct serve_cfg, whose names are those of the options of lmdeploy serve api_server",
        ModelConfigurationError,
    ),
    Symptom(
        r"No module named '?lmdeploy[\w.]*'?",
        "install lmdeploy, or let python= name the interpreter of an environment that has it",
        ModelConfigurationError,
    ),
    Symptom(
        r"The (tool|reasoning) parser \S+ is not in the parser list",
        "choose another tool_parser or reasoning_parser, or None",
        ModelConfigurationError,
    ),
    Symptom(
        r"reasoning parser could not get reasoning tokens.*",
        "the model's tokenizer does not have the markers that LMDeploy looks for: pass reasoning_parser=None",
        ModelConfigurationError,
    ),
    Symptom(
        r"(?i)out of memory.*|No enough gpu memory.*|no enough cache blocks.*",
        "memory ran out: lower cache_max_entry_count, session_len or max_batch_size in serve_cfg, or spread the model over more GPUs (tp)",
        EngineError,
    ),
    Symptom(
        r"libcuda\.so.*|No CUDA GPUs are available|NVIDIA driver.*|Torch not compiled with CUDA.*",
        "LMDeploy needs a GPU and its driver: check nvidia-smi",
        ModelConfigurationError,
    ),
    Symptom(
        r"is not a local folder and is not a valid model identifier.*|Repository Not Found.*|Repo id must be .*",
        "check the name of the model, and the permissions of its repository",
        ModelConfigurationError,
    ),
    Symptom(
        r"in _mp_proc\n +with condition:",
        "on a busy machine, LMDeploy may end the process of a lock while its engine is about to release it; restart() tries again",
        passing=True,
    ),
    Symptom(r"engine process is not alive", "the engine was killed, or ended at an error that is in the log", fatal=True),
)

_START = """
import os, sys
sys.argv += ["--api-keys", os.environ.pop("LAGENT_LMDEPLOY_KEY")]
from lmdeploy.cli import run
run()
"""
"""``python -m lmdeploy`` with the key from the environment, as everybody on the machine can read a process's command."""


class _LMDeployMixin(ServedModel):
    """What requests to LMDeploy's server need."""

    engine = "lmdeploy"

    def _prepared(self, request: ModelRequest) -> ModelRequest:
        request = super()._prepared(request)
        params = dict(request.params)
        if (params.get("n") or 1) == 1 and self._api != "responses":
            # The id by which the request can be aborted.
            params["extra_body"] = {"session_id": _session_of(request), **(params.get("extra_body") or {})}
        return attrs.evolve(request, params=params)

    async def _abort(self, request: ModelRequest) -> None:
        """Tell the engine; otherwise it notices a closed connection only at the next token of the request."""
        endpoint = self._endpoints.next()
        assert endpoint is not None
        with anyio.move_on_after(5, shield=True), suppress(openai.OpenAIError):
            client = self._endpoints.client(endpoint)
            await client.post(f"{endpoint.root}/abort_request", body={"session_id": _session_of(request)}, cast_to=object)

    async def _complete(self, request: ModelRequest) -> ModelResponse:
        if not request.params.get("stop_words") or (request.params.get("n") or 1) > 1:
            return await super()._complete(request)
        answer = ResponseBuilder()
        async for chunk in self._stream(request):  # as it may have to be stopped
            answer.add(chunk)
        return answer.response()

    async def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        """The engine does not stop at words of several tokens, so this does; the answer then carries no usage."""
        answer = Answer(stop_words=request.params.get("stop_words") or ())
        source: Any = super()._stream(request)
        try:
            async for chunk in source:
                piece = Piece(chunk.content, finish_reason=chunk.finish_reason, usage=chunk.usage, extra=chunk.extra)
                cut = answer.add(piece)
                cut.reasoning, cut.tool_calls = chunk.reasoning, chunk.tool_calls
                yield cut
                if answer.stopped is not None:
                    break
        finally:
            await source.aclose()


class LMDeployClient(_LMDeployMixin):
    """A model behind a running server of LMDeploy.

    Args:
        url: the root URL of the server, ``http://host:port``.
        model_name: the model's name at the server.
        options: ``key``; arguments of :class:`lagent_openai.GPTAPI`; defaults of sampling parameters under lagent's names.

    Raises:
        ModelConfigurationError: an argument cannot be used.
    """

    def __init__(self, url: str, model_name: str, **options: Any) -> None:
        super().__init__(model_name, url=url, **options)


class AsyncLMDeployClient(AsyncServedMixin, LMDeployClient):
    """:class:`LMDeployClient` with asynchronous methods."""


class LMDeployServer(_LMDeployMixin, OwnedModel):
    """A model behind a server of LMDeploy that this object starts and owns.

    Args:
        path: the model's folder or name.
        model_name: the model's name at the server; by default, ``path``.
        server_name, server_port: where the server listens; without a port, at a free one.
        tp: over how many GPUs the model is spread.
        log_level: what the server logs, such as ``"INFO"``.
        serve_cfg: further options of ``lmdeploy serve api_server`` by name, ``{"backend": "pytorch", "session_len": 8192}``; ``adapters``
            may be a table of names and paths.
        options: ``key``, ``python``, ``load`` and others, see :class:`~lagent_engines.owned.OwnedModel`; arguments of
            :class:`lagent_openai.GPTAPI`; defaults of sampling parameters under lagent's names.

    Raises:
        ModelConfigurationError: there is no such model, or an argument cannot be used; options that LMDeploy does not know are refused
            when the server starts.
    """

    parsers: ClassVar[EngineParsers] = PARSERS
    symptoms = SYMPTOMS
    port_option = "--server-port"

    def __init__(
        self,
        path: str,
        model_name: str | None = None,
        server_name: str = "127.0.0.1",
        server_port: int | None = None,
        tp: int = 1,
        log_level: str | None = None,
        serve_cfg: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        engine_options = {"tp": tp if tp != 1 else None, "log_level": log_level, **(serve_cfg or {})}
        if isinstance(adapters := engine_options.get("adapters"), Mapping):
            engine_options["adapters"] = [f"{name}={folder}" for name, folder in adapters.items()]
        super().__init__(path, engine_options, model_name=model_name, host=server_name, port=server_port, **options)

    def _command(self, launch: Launch) -> list[str]:
        if launch.chat_template is not None:
            raise ModelConfigurationError(
                "LMDeploy's server takes no chat_template: put it into the model's folder as chat_template.jinja, or use LMDeployPipeline"
            )
        ours = {
            "model_name": launch.name,
            "server_name": launch.host,
            "tool_call_parser": launch.tool_parser,
            "reasoning_parser": launch.reasoning_parser,
            "enable_abort_handling": True,
            "enable_prefix_caching": True,
            "logprobs_mode": "raw_logprobs",
        }
        return ["-c", _START, "serve", "api_server", launch.path, *flags({**ours, **launch.options}, negative=False)]

    def _environment(self, key: str) -> dict[str, str]:
        return {"LAGENT_LMDEPLOY_KEY": key}


class AsyncLMDeployServer(AsyncServedMixin, LMDeployServer):
    """:class:`LMDeployServer` with asynchronous methods."""


def _session_of(request: ModelRequest) -> int:
    """The id of the server's session for one request; small numbers are ids that the server gives itself."""
    return 2**40 + int(request.request_id[:10], 16)
