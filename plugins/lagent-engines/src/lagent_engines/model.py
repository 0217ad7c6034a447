"""What models have in common that run in an engine of this process."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from attrs import evolve, frozen

from lagent import flow
from lagent.errors import EngineError, ModelConfigurationError
from lagent.flow import END, Call, Flow
from lagent.llms import AsyncLLMMixin, BaseLLM, Capabilities, ModelRequest, check_template, without_examples
from lagent.registry import create
from lagent.schema import ModelChunk, ModelResponse, SessionId, Usage
from lagent.threads import in_thread
from lagent_engines.answers import Answer, required_call
from lagent_engines.parsers import parsers_of
from lagent_engines.pieces import Generation, Source
from lagent_engines.prompts import Prompt, Prompts
from lagent_engines.templates import ChatTemplate, MetaTemplate, Template
from lagent_parsers import STYLES, DialectParser

__all__ = ["AsyncEngineMixin", "EngineModel"]


class EngineModel(BaseLLM):
    """A model whose engine runs in this process.

    A backend implements :meth:`_load_tokenizer`, :meth:`_load`, :meth:`_unload` and :meth:`_generate`, and names its
    ``engine_capabilities`` and ``sampling_parameters``.

    Beside its sampling parameters, a request takes ``return_token_ids`` (puts ``prompt_token_ids`` and ``token_ids`` into
    :attr:`ModelResponse.extra`) and ``chat_template_kwargs`` (variables of the chat template, such as ``enable_thinking``). Where the
    chat template does not extend the last prompt of the conversation, ``extra["history_rewritten"]`` says why.

    Args:
        path: the model's folder or name.
        chat_template: a chat template (Jinja) instead of the model's own.
        chat_template_kwargs: variables of the chat template for every request.
        tool_parser: the dialect in which the model writes tool calls, a name or a table as ``output_format`` takes it; ``"auto"`` tells
            by the chat template; ``None`` leaves them in the text, so that the model takes no ``tools``.
        reasoning_parser: the style of the model's reasoning, ``"auto"``, or ``None``, which leaves it in the text.
        on_template_mismatch: what a difference between a ``meta_template`` and the model's own template leads to.
        load: when the engine starts.
        options: lagent's arguments and defaults of sampling parameters; see :class:`~lagent.llms.BaseLLM`.

    Raises:
        ModelConfigurationError: there is no such model, or an argument cannot be used.
    """

    engine_capabilities: ClassVar[Capabilities] = Capabilities(streaming=True, raw_prompts=True, prefix_caching=True)
    """What the engine can do with any model."""
    constraints: ClassVar[frozenset[str]] = frozenset()
    """The sampling parameters that hold the model to a form, so that neither tool calls nor reasoning are looked for in the text."""

    def __init__(
        self,
        path: str,
        *,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tool_parser: str | Mapping[str, Any] | None = "auto",
        reasoning_parser: str | None = "auto",
        on_template_mismatch: Literal["error", "warn", "ignore"] = "warn",
        load: Literal["first use", "now"] = "first use",
        **options: Any,
    ) -> None:
        if load not in ("first use", "now"):
            raise ModelConfigurationError(f"load must be 'first use' or 'now', not {load!r}")
        super().__init__(path, **options)
        self._tokenizer = self._load_tokenizer()
        own = ChatTemplate(self._tokenizer, chat_template, chat_template_kwargs)
        template: Template = own
        if self.meta_template:
            template = MetaTemplate(self.template_parser)
            if own.source is not None:
                check_template(
                    self.template_parser, lambda messages: own.render(messages, generate=True), on_mismatch=on_template_mismatch
                )
        self._chat_template = own
        self._prompts = Prompts(template, self._tokenizer, add_special_tokens=template is not own)
        source = None if self.meta_template else own.source
        self._with_tools, self._without_tools = parsers_of(source, self._tokenizer, tool_parser, reasoning_parser)
        self.capabilities = evolve(
            self.engine_capabilities,
            system_role=template is not own or own.knows("system"),
            tools=self._with_tools is not None and own.knows_tools(),
            reasoning=self._without_tools is not None,
        )
        self._warned = False
        self._loading = threading.Lock()
        self._loaded = False
        if load == "now":
            self._ready()

    @property
    def chat_template(self) -> str | None:
        """The chat template that the model uses: its own, or the one given."""
        return self._chat_template.source

    def close_session(self, session_id: SessionId) -> Any:
        """Forget the conversations of a session."""
        self._prompts.forget(session_id)

    def close(self) -> Any:
        """Stop what is running and the engine; a later request starts it again."""
        with self._loading:
            if self._loaded:
                self._loaded = False
                self._unload()

    def restart(self) -> Any:
        """Start the engine anew, for example after its death."""
        EngineModel.close(self)
        self._ready()

    # For backends

    def _load_tokenizer(self) -> Any:
        """The model's Hugging Face tokenizer.

        Raises:
            ModelConfigurationError: there is no such model.
        """
        raise NotImplementedError

    def _load(self) -> None:
        """Start the engine. Called once before the first request, and again after :meth:`_unload`."""
        raise NotImplementedError

    def _unload(self) -> None:
        """Stop the engine and all it started."""
        raise NotImplementedError

    def _generate(self, generation: Generation) -> Source:
        """Hand ``generation`` to the engine at once, so that the requests of a batch run together; the source gives what it generates.

        Raises:
            ModelError: the engine cannot take it.
        """
        raise NotImplementedError

    def _media(self, request: ModelRequest) -> Any:
        """What belongs to the prompt of ``request`` beside its text; see :attr:`Generation.media`."""
        return None

    # From request to answer

    def _complete(self, request: ModelRequest) -> Any:
        return flow.run(self._whole(request))

    def _stream(self, request: ModelRequest) -> Any:
        return flow.stream(self._respond(request))

    def _whole(self, request: ModelRequest) -> Flow[ModelResponse]:
        (started,) = yield from self._submit([request], streamed=False)
        return (yield from self._collect(started))

    def _respond(self, request: ModelRequest) -> Flow[ModelChunk]:
        """Emit the chunks of the answer."""
        (started,) = yield from self._submit([request], streamed=True)
        return (yield from self._drain(started))

    def _batch(self, requests: list[ModelRequest]) -> Flow[list[ModelResponse]]:
        """Answer several requests as one batch of the engine: all are handed over before the first is waited for."""
        started = yield from self._submit(requests, streamed=False)
        responses = []
        try:
            for each in started:
                responses.append((yield from self._collect(each)))
        finally:
            for each in started:
                yield each.source.close()
        return responses

    def _submit(self, requests: Sequence[ModelRequest], *, streamed: bool) -> Flow[list[_Started]]:
        """Hand requests to the engine."""
        prepared = yield Call(self._prepare_all, (requests, streamed), blocking=True)
        # Not in a thread: one that is cancelled would go on, and nobody would close what it has started.
        started: list[_Started] = []
        try:
            for each in prepared:
                started.append(_Started(each, self._generate(each.generation)))
        except BaseException:
            for other in started:
                yield other.source.close()
            raise
        return started

    def _prepare_all(self, requests: Sequence[ModelRequest], streamed: bool) -> list[_Prepared]:
        prepared = [self._prepare(request, streamed) for request in requests]
        self._ready()
        return prepared

    def _prepare(self, request: ModelRequest, streamed: bool) -> _Prepared:
        """Check what is asked, and say it in the engine's terms."""
        params = {name: value for name, value in request.params.items() if value is not None and value != []}
        wants_ids = params.pop("return_token_ids", False)
        options = params.pop("chat_template_kwargs", None)
        call = required_call(request.tools, request.tool_choice) if request.tools else None
        if call is not None and request.output_schema is not None:
            raise ModelConfigurationError(
                "output_schema and a tool_choice that demands a call exclude each other: give one of them"
            )
        prompt = None
        if request.messages:
            self._check_roles(request.messages)
            tools = [without_examples(tool) for tool in request.tools or ()]
            prompt = self._prompts.make(request.messages, tools or None, options, request.session_id)
        ids = self._prompts.plain(request.prompt or "") if prompt is None else prompt.ids
        constrained = call or request.output_schema or params.keys() & self.constraints
        parser = None if prompt is None or constrained else self._parser(request, ids)
        answer = Answer(parser, self._stop_words(params), call=call is not None)
        generation = Generation(
            request.request_id,
            ids,
            params,
            call or request.output_schema,
            streamed,
            # The parsers that go with a meta_template look for them in the text.
            keep_special_tokens=parser is not None or bool(self.meta_template),
            session_id=request.session_id,
            media=None if prompt is None else self._media(request),
        )
        return _Prepared(answer, generation, prompt, wants_ids)

    def _collect(self, started: _Started) -> Flow[ModelResponse]:
        """The whole answer."""
        last = yield from self._drain(started)
        response = started.asked.answer.response()
        response.usage, response.extra = last.usage, last.extra
        return response

    def _drain(self, started: _Started) -> Flow[ModelChunk]:
        source, asked = started.source, started.asked
        answer, generation, prompt = asked.answer, asked.generation, asked.prompt
        last = ModelChunk()
        try:
            while (piece := (yield source.next())) is not END:
                last = answer.add(piece)
                if last.finish_reason is None and (last.content or last.reasoning or last.tool_calls):
                    yield last
                if answer.stopped is not None:
                    break
        finally:
            yield source.close()
        if last.finish_reason is None:
            raise EngineError(f"the engine of {self.path!r} ended the answer without saying why")
        reply = answer.reply()
        last.extra = {"request_id": generation.request_id, **last.extra}
        last.usage = last.usage or Usage(len(generation.prompt_ids), len(reply.token_ids))
        if asked.wants_ids:
            last.extra |= {"prompt_token_ids": generation.prompt_ids, "token_ids": reply.token_ids}
        if prompt is not None:
            self._prompts.answered(prompt, reply, generation.session_id)
            if prompt.rewritten is not None:
                last.extra["history_rewritten"] = prompt.rewritten
                self._warn(prompt.rewritten)
        return last

    # Details

    def _ready(self) -> None:
        """Start the engine if it does not run."""
        with self._loading:
            if not self._loaded:
                self._load()
                self._loaded = True

    def _stop_words(self, params: dict[str, Any]) -> list[str]:
        """The stop words that the engine does not watch for, taken out of ``params``."""
        return []

    def _parser(self, request: ModelRequest, ids: Sequence[int]) -> DialectParser | None:
        """What reads the answer to ``request``."""
        reads_calls = request.tools and request.tool_choice != "none"
        spec = self._with_tools if reads_calls else self._without_tools
        if spec is None:
            return None
        arguments: dict[str, Any] = {"tools": request.tools} if reads_calls else {}
        if spec.get("reasoning") in STYLES:
            # Whether the prompt begins the reasoning may depend on the request.
            end = str(self._tokenizer.decode(ids[-16:], skip_special_tokens=False)).rstrip()
            arguments["reasoning_started"] = end.endswith(STYLES[spec["reasoning"]].open.strip())
        parser: DialectParser = create("parsers", {**spec, **arguments})
        return parser

    def _check_roles(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Refuse roles that the chat template leaves out, before the call; those of earlier turns were checked with them."""
        if self.meta_template:
            return  # it refuses them itself
        for message in reversed(messages):
            role = message["role"]
            if not self._chat_template.knows(role):
                known = [each for each in ("system", "user", "assistant", "tool") if self._chat_template.knows(each)]
                raise ModelConfigurationError(
                    f"the chat template of {self.path!r} has no place for messages of the role {role!r}, only for {', '.join(known)}: "
                    "use one of these, or pass a chat_template that has it"
                )
            if role == "assistant":
                return

    def _rendered(self, messages: list[dict[str, Any]]) -> str | None:
        """Nothing: the prompt is made of the messages turn by turn."""
        return None

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the prompts of {self.path!r} do not extend each other, so the engine computes the conversation anew at such a turn: {reason}",
                stacklevel=2,
            )


class AsyncEngineMixin(AsyncLLMMixin):
    """Makes a model asynchronous; goes before the class of the engine."""

    def _complete(self: Any, request: ModelRequest) -> Any:
        return flow.arun(self._whole(request))

    def _stream(self: Any, request: ModelRequest) -> Any:
        return flow.astream(self._respond(request))

    async def close(self: Any) -> None:
        """See :meth:`EngineModel.close`."""
        await in_thread(lambda: EngineModel.close(self))

    async def restart(self: Any) -> None:
        """See :meth:`EngineModel.restart`."""
        await in_thread(lambda: EngineModel.restart(self))


@frozen
class _Prepared:
    """A request in the engine's terms."""

    answer: Answer
    generation: Generation
    prompt: Prompt | None
    wants_ids: bool


@frozen
class _Started:
    """A request that the engine works on."""

    asked: _Prepared
    source: Source
