"""llama.cpp in this process: loading a file, running completions, errors in lagent's terms."""

from __future__ import annotations

import atexit
import json
import secrets
import threading
import urllib.request
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from lagent.errors import ContextOverflowError, EngineError, ModelConfigurationError, ModelError
from lagent.flow import END, Call, Flow
from lagent.schema import ModelChunk, ToolCallDelta, Usage
from lagent.threads import Mailbox

__all__ = ["Engine", "Generation"]

Body = dict[str, Any]

_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""How llguidance, the grammar engine of xllamacpp's wheels, is told to lay out JSON."""


class Engine:
    """A loaded model.

    Args:
        file: the GGUF file.
        n_ctx: tokens that one request may take, prompt and answer.
        n_parallel: requests that run at the same time; more of them wait.
        n_threads: threads that compute.
        n_gpu_layers: layers to keep on a GPU, where xllamacpp was built for one.
        cache_ram: MiB of memory that may hold the states of conversations which no running request uses.
        chat_template: a Jinja chat template instead of the file's own.

    Raises:
        ModelConfigurationError: llama.cpp cannot load the file.
    """

    def __init__(
        self,
        file: Path,
        *,
        n_ctx: int,
        n_parallel: int,
        n_threads: int,
        n_gpu_layers: int,
        cache_ram: int,
        chat_template: str | None,
    ) -> None:
        import xllamacpp  # type: ignore[import-untyped]

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx, params.n_parallel = n_ctx * n_parallel, n_parallel
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = n_threads
        params.n_gpu_layers = n_gpu_layers
        params.cache_ram_mib = cache_ram
        # A prompt can be cancelled between its batches only.
        params.n_batch = params.n_ubatch = 256
        if chat_template is not None:
            params.chat_template = chat_template
        # xllamacpp always opens a port. Nobody else gets past this key.
        self._key = secrets.token_hex(32)
        params.api_keys, params.hostnames, params.port = [self._key], ["127.0.0.1"], 0
        params.n_threads_http, params.ui = 1, False
        params.verbosity = -1
        try:
            self._server: Any = xllamacpp.Server(params)
        except RuntimeError as error:
            raise ModelConfigurationError(
                f"llama.cpp cannot load {str(file)!r}: the file is damaged or incomplete, its architecture is newer than the installed "
                f"xllamacpp, or memory is short ({error})"
            ) from error
        self._turns = threading.Semaphore(n_parallel)
        self._running: dict[Generation, threading.Thread] = {}
        _loaded.add(self)
        self._grammar_of: Callable[[str], str] = xllamacpp.json_schema_to_grammar
        self._grammars: dict[str, str] = {}

    def start(self, kind: Literal["chat", "text"], body: Body, usage: Usage | None = None) -> Generation:
        """Begin a completion.

        Args:
            kind: whether ``body`` has ``messages`` or a ``prompt``.
            body: a request in the form of the OpenAI routes of llama.cpp's server.
            usage: the tokens of earlier completions of the same answer, to be added up.

        Raises:
            ModelConfigurationError: the model was closed.
        """
        if self._server is None:
            raise ModelConfigurationError("the model was closed and answers nothing any more")
        handle = self._server.handle_chat_completions if kind == "chat" else self._server.handle_completions
        generation = Generation(usage or Usage(cached_tokens=0))
        body = {**body, "stream": True, "return_progress": True}
        # Threads that the interpreter waits for at its exit would finish answers that nobody reads any more.
        thread = threading.Thread(target=self._run, args=(generation, handle, body), name="lagent-llamacpp", daemon=True)
        self._running[generation] = thread
        thread.start()
        return generation

    def _run(self, generation: Generation, handle: Any, body: Body) -> None:
        try:
            with self._turns:
                generation.run(handle, body)
        finally:
            del self._running[generation]

    def emit(
        self, kind: Literal["chat", "text"], body: Body, usage: Usage | None = None, *, strip: bool = False
    ) -> Flow[ModelChunk]:
        """Emit the chunks of a completion; see :meth:`start`. ``strip`` drops white space at its beginning."""
        with self.start(kind, body, usage) as generation:
            while True:
                chunk = yield from generation.next()
                if strip:
                    chunk.content = chunk.content.lstrip()
                    strip = not chunk.content
                yield chunk
                if chunk.finish_reason:
                    return chunk

    def ask(self, route: str, body: Body | None = None) -> Any:
        """The answer of one of the server's routes that xllamacpp gives no method for."""
        request = urllib.request.Request(
            self._server.listening_address + route,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"},
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=60) as answer:
            return json.load(answer)

    def grammar(self, schema: Body) -> Flow[str]:
        """A grammar for JSON of ``schema``, without the optional white space that small models lose themselves in.

        Raises:
            ModelConfigurationError: ``schema`` is not a JSON schema that llama.cpp can follow.
        """
        source = json.dumps({**schema, "x-guidance": _COMPACT})
        if source not in self._grammars:
            try:
                grammar = self._grammar_of(source)
            except (RuntimeError, ValueError) as error:
                raise ModelConfigurationError(
                    f"llama.cpp cannot follow the JSON schema {json.dumps(schema):.200}: {error}"
                ) from error
            # A schema that llguidance does not understand is ignored without a word. One token tells: no JSON begins with this one.
            body = {"prompt": "{", "max_tokens": 1, "temperature": 0, "grammar": grammar, "logit_bias": [["~", 1000]]}
            with self.start("text", body) as generation:
                if "~" in (yield from generation.next()).content:
                    raise ModelConfigurationError(f"llama.cpp cannot follow the JSON schema {json.dumps(schema):.200}")
            self._grammars[source] = grammar
        return self._grammars[source]

    def close(self) -> None:
        """Stop what is running and unload the model."""
        for generation, thread in tuple(self._running.items()):
            generation.close()
            thread.join()
        self._server = None


_loaded: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for engine in tuple(_loaded):
        engine.close()


class Generation:
    """A running completion: its pieces, and the switch that stops it."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._pieces = Mailbox()
        self._closed = False
        self._logprobs: list[Any] = []

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self) -> Flow[ModelChunk]:
        """Wait for the next chunk; usage, timings and log-probabilities are in the last, which has a ``finish_reason``.

        Raises:
            ModelError: the request failed.
        """
        while (piece := (yield Call(self._pieces.take))) is not END:
            if "error" in piece:
                raise _error(piece["error"])
            choice = piece["choices"][0]
            delta = choice.get("delta") or {"content": choice.get("text")}
            self._logprobs += (choice.get("logprobs") or {}).get("content") or ()
            chunk = ModelChunk(
                content=delta.get("content") or "",
                reasoning=delta.get("reasoning_content") or "",
                tool_calls=[_call_delta(call) for call in delta.get("tool_calls") or ()],
                finish_reason=choice.get("finish_reason"),
            )
            if chunk.finish_reason:
                timings, chunk.usage = piece["timings"], self._usage
                self._usage.prompt_tokens += timings["cache_n"] + timings["prompt_n"]
                self._usage.completion_tokens += timings["predicted_n"]
                self._usage.cached_tokens = (self._usage.cached_tokens or 0) + timings["cache_n"]
                chunk.extra = {"timings": timings, **({"logprobs": self._logprobs} if self._logprobs else {})}
            if chunk.content or chunk.reasoning or chunk.tool_calls or chunk.finish_reason:
                return chunk
        raise EngineError("llama.cpp ended the answer without saying why")

    def close(self) -> None:
        """Stop the completion at its next token."""
        self._closed = True

    def run(self, handle: Callable[[Body, Callable[[Body], bool]], Any], body: Body) -> None:
        """Run the completion in this thread."""
        try:
            if not self._closed:
                handle(body, self._put)
        except Exception as error:  # whatever it is, the reader is waiting
            failure = EngineError(f"llama.cpp could not take the request: {error}")
            failure.__cause__ = error
            self._pieces.fail(failure)
        self._pieces.put(END)

    def _put(self, piece: Any) -> bool:
        """Hand over a piece; the answer tells llama.cpp whether to stop."""
        self._pieces.put(piece)
        return self._closed


def _call_delta(call: Body) -> ToolCallDelta:
    function = call.get("function") or {}
    return ToolCallDelta(call["index"], function.get("name"), function.get("arguments") or "", call.get("id"))


def _error(error: Body) -> ModelError:
    """The error object of llama.cpp's server as lagent's."""
    message, kind = str(error.get("message")), error.get("type")
    if kind == "exceed_context_size_error":
        return ContextOverflowError(
            f"the prompt has {error.get('n_prompt_tokens')} tokens and the model was loaded for {error.get('n_ctx')}: "
            "shorten the conversation or load the model with a larger n_ctx"
        )
    if kind in ("invalid_request_error", "not_supported_error"):
        return ModelConfigurationError(f"llama.cpp refused the request: {message}")
    return EngineError(f"llama.cpp failed: {message}")
