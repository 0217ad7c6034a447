"""The models ``LMDeployPipeline`` and ``AsyncLMDeployPipeline``."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, ClassVar

from lagent.errors import ContextOverflowError, EngineError, ModelConfigurationError
from lagent.llms import Capabilities
from lagent.schema import Usage
from lagent_engines import AsyncEngineMixin, EngineModel, Generation, Piece, Source
from lagent_lmdeploy.config import Backend, check_version, engine_config
from lagent_lmdeploy.engine import Engine
from lagent_lmdeploy.sampling import CONSTRAINTS, PARAMETERS, generation_config
from lagent_lmdeploy.templates import ConfiguredTemplate, template_config

__all__ = ["AsyncLMDeployPipeline", "LMDeployPipeline"]


class LMDeployPipeline(EngineModel):
    """A model run in this process by LMDeploy.

    Beside lagent's sampling parameters it knows ``min_p``, ``min_new_tokens``, ``seed``, ``do_sample``, ``repetition_ngram_size``,
    ``repetition_ngram_threshold``, ``stop_token_ids``, ``bad_words``, ``bad_token_ids``, ``ignore_eos``, ``skip_special_tokens`` and
    ``logits_processors`` as LMDeploy does (https://lmdeploy.readthedocs.io/en/latest/api/pipeline.html), and

    - ``regex``, ``grammar`` (EBNF) or ``response_format`` (LMDeploy's own form) for the form of the answer;
    - ``logprobs``: how many alternatives of each token to put into ``extra["logprobs"]``;
    - ``lora``: the name of one of the ``adapters``.

    Args:
        path: the model's folder or name.
        model_name: the name of a chat template of LMDeploy, instead of the model's own.
        tp: over how many GPUs the model is spread.
        pipeline_cfg: options of the engine by name, or a ``TurbomindEngineConfig`` or ``PytorchEngineConfig``. By name, prefix caching
            is on unless it is switched off.
        backend: the engine; without it, LMDeploy chooses.
        chat_template_config: a ``ChatTemplateConfig`` of LMDeploy, or its fields by name, instead of the model's own chat
            template. A ``meta_template`` goes before it and ``model_name``.
        adapters: LoRA adapters by name, with their folders; PyTorch engine only.
        trust_remote_code: whether code that comes with the model may run.
        log_level: what LMDeploy logs.
        options: see :class:`lagent_engines.EngineModel`.

    Raises:
        ModelConfigurationError: there is no such model, or an argument cannot be used.
    """

    engine_capabilities: ClassVar[Capabilities] = Capabilities(
        json_schema=True, grammar=True, streaming=True, logprobs=True, raw_prompts=True, prefix_caching=True
    )
    sampling_parameters: ClassVar[frozenset[str]] = PARAMETERS | {"return_token_ids", "chat_template_kwargs"}
    constraints: ClassVar[frozenset[str]] = CONSTRAINTS

    def __init__(
        self,
        path: str,
        model_name: str | None = None,
        tp: int = 1,
        pipeline_cfg: Any = None,
        *,
        backend: Backend | None = None,
        chat_template_config: Any = None,
        adapters: Mapping[str, str] | None = None,
        trust_remote_code: bool = False,
        log_level: str = "WARNING",
        **options: Any,
    ) -> None:
        check_version()
        self._engine: Engine | None = None
        config = engine_config(path, backend, pipeline_cfg, tp=tp, adapters=adapters, trust_remote_code=trust_remote_code)
        template = None if options.get("meta_template") else _template(chat_template_config, model_name, options)
        self._pipeline_options = {
            "backend_config": config,
            "chat_template_config": template,
            "trust_remote_code": trust_remote_code,
            "log_level": log_level,
        }
        if template is not None:
            options |= {"meta_template": template, "template_parser": ConfiguredTemplate}
        super().__init__(path, **options)

    def _load_tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        config, trusted = (self._pipeline_options[name] for name in ("backend_config", "trust_remote_code"))
        try:
            return AutoTokenizer.from_pretrained(
                self.path, trust_remote_code=trusted, revision=config.revision, cache_dir=config.download_dir
            )
        except (OSError, ValueError, KeyError) as error:
            raise ModelConfigurationError(f"no tokenizer of a model can be loaded from {self.path!r}: {error}") from error

    def _load(self) -> None:
        # LMDeploy writes into what it is given.
        self._engine = Engine(self.path, **copy.deepcopy(self._pipeline_options))

    def _unload(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _stop_words(self, params: dict[str, Any]) -> list[str]:
        """All: the engine takes every token for a stop word that has it somewhere inside, so it watches for special tokens only."""
        return list(params.get("stop_words", ()))

    def _generate(self, generation: Generation) -> Source:
        engine, params = self._engine, generation.params
        if engine is None:
            raise EngineError("the engine was closed before it got the request: ask again, which starts it anew")
        adapter, adapters = params.get("lora"), getattr(self._pipeline_options["backend_config"], "adapters", None) or {}
        if adapter is not None and adapter not in adapters:
            raise ModelConfigurationError(
                f"no LoRA adapter {adapter!r} was loaded: pass it as adapters={{{adapter!r}: its folder}}; "
                f"loaded are {', '.join(map(repr, adapters)) or 'none'}"
            )
        room = engine.session_len - len(generation.prompt_ids)
        if room < 1:
            raise ContextOverflowError(
                f"the prompt has {len(generation.prompt_ids)} tokens and the engine takes {engine.session_len}, prompt and answer: "
                "shorten the conversation, or load the model with a larger session_len in pipeline_cfg"
            )
        stop_words = params.get("stop_words", ())
        special = self._tokenizer.get_added_vocab() if stop_words else {}
        watched = {special[word]: word for word in stop_words if word in special}
        config = generation_config(generation, room, [*watched, *engine.stop_token_ids])
        # Each piece crosses threads, which is spared where nobody looks at it before the end.
        whole = not generation.streamed and len(watched) == len(stop_words)
        outputs = partial(engine.generate, generation.prompt_ids, config, adapter)
        return engine.bridge.stream(lambda: self._pieces(outputs(), watched, whole))

    async def _pieces(
        self, outputs: AsyncGenerator[Any, None], watched: Mapping[int, str], whole: bool
    ) -> AsyncGenerator[Piece, None]:
        """What the engine generates.

        Args:
            outputs: from the engine.
            watched: the stop words that it watches for, by their tokens.
            whole: give everything in one piece.
        """
        logprobs: list[dict[str, Any]] = []
        piece = Piece()
        async with aclosing(outputs):
            async for out in outputs:
                token_ids = list(out.token_ids or ())
                piece.token_ids += token_ids
                if out.finish_reason is None:
                    piece.text += out.response
                    logprobs += map(self._logprob, token_ids, out.logprobs or ())
                else:
                    piece.finish_reason = out.finish_reason
                    piece.usage = Usage(out.input_token_len, out.generate_token_len, out.cached_tokens)
                    piece.extra = {"logprobs": logprobs} if logprobs else {}
                    if out.finish_reason == "stop":  # with the token that ended the turn, which is no part of the text
                        piece.stopped_by = watched.get(token_ids[-1]) if token_ids else None
                    else:
                        piece.text += out.response
                if piece.finish_reason is not None or not whole:
                    yield piece
                    piece = Piece()

    def _logprob(self, token: int, found: Mapping[int, float]) -> dict[str, Any]:
        """The log-probability of a token as the OpenAI API has it, with the alternatives in order."""
        ranked = sorted(found.items(), key=lambda item: item[1], reverse=True)
        top = [{"token": self._tokenizer.decode([id_]), "logprob": value} for id_, value in ranked]
        return {"token": self._tokenizer.decode([token]), "logprob": found[token], "top_logprobs": top}


class AsyncLMDeployPipeline(AsyncEngineMixin, LMDeployPipeline):
    """:class:`LMDeployPipeline` for asynchronous callers; any number of event loops may use it."""


def _template(config: Any, model_name: str | None, options: Mapping[str, Any]) -> Any:
    """The ``ChatTemplateConfig`` that is to render the prompts, if any."""
    template = template_config(config, model_name)
    if template is not None and options.get("chat_template") is not None:
        raise ModelConfigurationError(
            "chat_template and chat_template_config (or model_name) exclude each other: give one of them"
        )
    return template
