"""The models that users meet."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar, Literal

from lagent import flow
from lagent.errors import ModelConfigurationError
from lagent.flow import Flow
from lagent.llms import AsyncLLMMixin, BaseLLM, Capabilities, ModelRequest, check_template, without_examples
from lagent.schema import ModelChunk
from lagent_llamacpp import models
from lagent_llamacpp.engine import Engine
from lagent_llamacpp.guided import GuidedTools, checked_choice

__all__ = ["AsyncLlamaCppModel", "LlamaCppModel"]

_NAMES = {
    "max_new_tokens": "max_tokens",
    "repetition_penalty": "repeat_penalty",
    "stop_words": "stop",
    **{
        name: name
        for name in (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "seed",
            "grammar",
            "logprobs",
        )
    },
}
"""The sampling parameters under lagent's names, with llama.cpp's."""


class LlamaCppModel(BaseLLM):
    """A model in a GGUF file, run in this process by llama.cpp.

    Beside lagent's own sampling parameters it knows ``min_p``, ``presence_penalty``, ``frequency_penalty``, ``seed``, ``grammar``
    (GBNF) and ``logprobs`` (how many alternatives of each token to put into ``extra["logprobs"]``).

    Args:
        path: a ``.gguf`` file, ``hf:owner/repo/file.gguf`` or the name of a known model; without it the default model, fetched once.
        n_ctx: tokens that one request may take, prompt and answer.
        n_parallel: requests that run at the same time; more of them wait for their turn.
        n_threads: threads that compute. More than one helps on an idle machine and stalls on a busy one.
        n_gpu_layers: layers to keep on a GPU, where xllamacpp was built for one.
        cache_ram: MiB of memory for the states of conversations that are not running, so that they go on without a new prefill.
        chat_template: a chat template (Jinja) instead of the model's own.
        on_template_mismatch: what a difference between a ``meta_template`` and the model's own template leads to.
        options: lagent's arguments and defaults of sampling parameters; see :class:`~lagent.llms.BaseLLM`.

    Raises:
        ModelConfigurationError: there is no such file, it cannot be loaded, or a sampling parameter is unknown.
        ModelConnectionError: the model could not be fetched.
    """

    capabilities = Capabilities(
        tools=True, json_schema=True, grammar=True, streaming=True, logprobs=True, raw_prompts=True, prefix_caching=True
    )
    sampling_parameters: ClassVar[frozenset[str]] = frozenset(_NAMES)

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        n_ctx: int = 4096,
        n_parallel: int = 2,
        n_threads: int = 1,
        n_gpu_layers: int = 0,
        cache_ram: int = 512,
        chat_template: str | None = None,
        on_template_mismatch: Literal["error", "warn", "ignore"] = "warn",
        **options: Any,
    ) -> None:
        super().__init__(str(path or models.DEFAULT), **options)
        self._engine = Engine(
            models.resolve(path),
            n_ctx=n_ctx,
            n_parallel=n_parallel,
            n_threads=n_threads,
            n_gpu_layers=n_gpu_layers,
            cache_ram=cache_ram,
            chat_template=chat_template,
        )
        self._own_tools = bool(self._engine.ask("/props")["chat_template_caps"]["supports_tools"])
        self._guided = GuidedTools(self._engine)
        check_template(self.template_parser, self.apply_chat_template, on_mismatch=on_template_mismatch)

    @property
    def chat_template(self) -> str | None:
        """The chat template that the model uses: the file's own, or the one given."""
        return str(self._engine.ask("/props")["chat_template"])

    def apply_chat_template(self, messages: list[dict[str, Any]]) -> str:
        """The prompt that the model's chat template makes of ``messages``."""
        return str(self._engine.ask("/apply-template", {"messages": messages})["prompt"])

    def close(self) -> Any:
        """Stop what is running and unload the model."""
        self._engine.close()

    def _stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        return flow.stream(self._respond(request))

    def _respond(self, request: ModelRequest) -> Flow[ModelChunk]:
        """Emit the chunks of the answer."""
        body = yield from self._body(request)
        if request.tools:
            choice = checked_choice(request.tool_choice, [tool["function"]["name"] for tool in request.tools])
            # llama.cpp does not hold a model to a call that is required; guidance does.
            if not self._own_tools or request.prompt is not None or choice not in ("auto", "none"):
                return (yield from self._guided.respond(request, choice, body))
            body.update(tools=[without_examples(tool) for tool in request.tools], tool_choice=choice)
        if request.prompt is not None:
            return (yield from self._engine.emit("text", {**body, "prompt": request.prompt}))
        return (yield from self._engine.emit("chat", {**body, "messages": request.messages}))

    def _body(self, request: ModelRequest) -> Flow[dict[str, Any]]:
        """The sampling parameters as llama.cpp's server takes them."""
        body = {_NAMES[name]: value for name, value in request.params.items() if value is not None}
        if request.output_schema is not None:
            if "grammar" in body:
                raise ModelConfigurationError("output_schema and grammar exclude each other: give one of them")
            body["grammar"] = yield from self._engine.grammar(request.output_schema)
        if alternatives := body.pop("logprobs", None):
            body["n_probs"] = alternatives
        return body


class AsyncLlamaCppModel(AsyncLLMMixin, LlamaCppModel):
    """:class:`LlamaCppModel` for asynchronous callers; the event loop is never blocked by a generation."""

    def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:  # type: ignore[override]
        return flow.astream(self._respond(request))
