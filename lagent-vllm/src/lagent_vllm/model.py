"""The models that run vLLM in this process."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from attrs import evolve

from lagent.errors import ModelConfigurationError
from lagent.flow import Stream
from lagent.llms import Capabilities, ModelRequest
from lagent_engines import AsyncEngineMixin, EngineModel, Generation, Source
from lagent_engines.launch import ModelFiles
from lagent_vllm import versions
from lagent_vllm.async_engine import AsyncEngine
from lagent_vllm.engine import Engine
from lagent_vllm.errors import check_length
from lagent_vllm.images import Images
from lagent_vllm.requests import CONSTRAINTS, EngineRequest, parameter_names, prepare

__all__ = ["AsyncVllmModel", "VllmModel"]


class VllmModel(EngineModel):
    """A model run by vLLM in this process.

    A list of conversations is one batch of the engine, and so are the requests of several threads.

    Beside lagent's own sampling parameters it knows all of vLLM's ``SamplingParams`` by name (``seed``, ``min_p``, ``logprobs``,
    ``prompt_logprobs``, ``ignore_eos``, ``stop_token_ids``, …), and ``regex``, ``choice`` (a list of texts) and ``grammar`` (EBNF), to
    which the answer is held; ``lora`` (the name of an adapter) and ``priority`` (lower is earlier, with
    ``vllm_cfg={"scheduling_policy": "priority"}``).

    Args:
        path: the model's folder, or its name on the Hugging Face Hub.
        tp: on how many GPUs each layer is spread (tensor parallelism).
        vllm_cfg: vLLM's other engine arguments by name, such as ``max_model_len`` or ``gpu_memory_utilization``. Code that comes with a
            model is run only with ``{"trust_remote_code": True}``.
        lora_modules: LoRA adapters: name and folder.
        options: see :class:`lagent_engines.EngineModel`.

    Raises:
        ModelConfigurationError: there is no such model, vLLM is missing or of a version that is not supported, or an argument cannot be
            used.
    """

    engine_capabilities: ClassVar[Capabilities] = Capabilities(
        json_schema=True, grammar=True, streaming=True, logprobs=True, raw_prompts=True, prefix_caching=True
    )
    constraints: ClassVar[frozenset[str]] = CONSTRAINTS
    _start_engine: ClassVar[Callable[..., Any]] = Engine

    def __init__(
        self,
        path: str,
        tp: int = 1,
        vllm_cfg: Mapping[str, Any] | None = None,
        *,
        lora_modules: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        versions.check_version()
        self.sampling_parameters = parameter_names()  # type: ignore[misc]  # those of the installed version
        given = {"model": path, "tensor_parallel_size": tp}
        if twice := given.keys() & (vllm_cfg or {}).keys():
            raise ModelConfigurationError(f"give {' and '.join(sorted(twice))} as path and tp, not in vllm_cfg")
        versions.check_names(vllm_cfg or (), versions.engine_arguments(), "engine argument of vLLM")
        lora = {"enable_lora": True} if lora_modules else {}
        self._arguments = {**given, "disable_log_stats": True, **lora, **(vllm_cfg or {})}
        self._lora_modules = dict(lora_modules or {})
        super().__init__(path, **options)
        added = self._tokenizer.added_tokens_decoder.items()
        self._special_tokens = {str(token): number for number, token in added if token.special}
        self._images = Images(self._arguments)
        takes_images = not self.meta_template and self._chat_template.knows_images() and ModelFiles.of(path).images
        self.capabilities = evolve(self.capabilities, images=takes_images)

    def _load_tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        arguments = self._arguments
        path = arguments.get("tokenizer") or self.path
        try:
            return AutoTokenizer.from_pretrained(
                path,
                revision=arguments.get("tokenizer_revision") or arguments.get("revision"),
                trust_remote_code=arguments.get("trust_remote_code", False),
            )
        except (OSError, ValueError) as error:
            raise ModelConfigurationError(
                f"no model with a tokenizer is found at {path!r}: give its folder, or its name on the Hugging Face Hub ({error})"
            ) from error

    def _load(self) -> None:
        from vllm.lora.request import LoRARequest

        self._adapters = {
            name: LoRARequest(name, number, folder) for number, (name, folder) in enumerate(self._lora_modules.items(), 1)
        }
        self._engine = self._start_engine(self._arguments, self._adapters)
        # Stops the engine as well when the model is dropped, and at the exit of the interpreter.
        self._stop = weakref.finalize(self, self._engine.close)

    def _unload(self) -> None:
        self._stop()

    def _media(self, request: ModelRequest) -> Any:
        return self._images.of(request.messages) if self.capabilities.images else None

    def _generate(self, generation: Generation) -> Source:
        return Stream(self._engine.generate(self._engine_request(generation)), blocking=True)

    def _engine_request(self, generation: Generation) -> EngineRequest:
        check_length(len(generation.prompt_ids), self._engine.max_model_len)
        if generation.params.get("priority") and self._arguments.get("scheduling_policy") != "priority":
            raise ModelConfigurationError(
                "the engine serves requests in the order in which they come, without regard to their priority: make the model with "
                "vllm_cfg={'scheduling_policy': 'priority'}"
            )
        return prepare(generation, self._adapters, self._special_tokens.get)


class AsyncVllmModel(AsyncEngineMixin, VllmModel):
    """:class:`VllmModel` for asynchronous callers, on one event loop or several: the engine runs on a loop of its own."""

    _start_engine = AsyncEngine

    def _generate(self, generation: Generation) -> Source:
        source: Source = self._engine.generate(self._engine_request(generation))
        return source
