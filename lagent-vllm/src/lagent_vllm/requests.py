"""Requests and answers in vLLM's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from lagent.errors import ModelConfigurationError
from lagent.schema import Usage
from lagent_engines import Generation, Piece
from lagent_vllm import versions

__all__ = ["CONSTRAINTS", "EngineRequest", "Outputs", "parameter_names", "prepare"]

_NAMES = {"max_new_tokens": "max_tokens", "stop_words": "stop"}
"""Sampling parameters that lagent calls otherwise."""
CONSTRAINTS = frozenset({"regex", "choice", "grammar"})
"""What holds the model to a form, beside ``output_schema``."""
_OWN = CONSTRAINTS | {"lora", "priority", "return_token_ids", "chat_template_kwargs"}
_LEFT_OUT = frozenset(
    {
        *_NAMES.values(),
        "structured_outputs",  # output_schema, regex, choice, grammar
        *("n", "output_kind", "skip_clone", "detokenize", "flat_logprobs", "output_text_buffer_length"),  # set here
    }
)


def parameter_names() -> frozenset[str]:
    """The sampling parameters of the models, under lagent's names."""
    return versions.sampling_parameters() - _LEFT_OUT | _NAMES.keys() | _OWN


@frozen
class EngineRequest:
    """A request as vLLM's engines take it."""

    id: str
    prompt: Any
    sampling_params: Any
    lora: Any
    priority: int
    cut_at: frozenset[int]
    """Tokens that end the answer, but not a turn."""


def prepare(generation: Generation, adapters: Mapping[str, Any], special_token: Callable[[str], int | None]) -> EngineRequest:
    """What to tell the engine.

    Args:
        adapters: vLLM's ``LoRARequest`` of each adapter, by name.
        special_token: the token that a text is, if it is a special one.

    Raises:
        ModelConfigurationError: vLLM refuses a sampling parameter, or there is no such adapter.
    """
    from vllm import SamplingParams, TokensPrompt
    from vllm.exceptions import VLLMClientError
    from vllm.inputs import tokens_input
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    params = dict(generation.params)
    priority, lora = params.pop("priority", 0), params.pop("lora", None)
    if lora is not None and lora not in adapters:
        versions.check_names([lora], adapters, "LoRA adapter")
    constraints = {name: params.pop(name) for name in CONSTRAINTS & params.keys()}
    if generation.output_schema is not None:
        constraints["json"] = generation.output_schema
    if len(constraints) > 1:
        raise ModelConfigurationError(f"{' and '.join(sorted(constraints))} exclude each other: give one of them")
    # A special token does not stand in the text, where vLLM looks for stop words.
    cut_at = frozenset(params.get("stop_token_ids", ()))
    stops = [token for word in params.get("stop_words", ()) if (token := special_token(word)) is not None]
    if stops:
        params["stop_token_ids"] = [*params.get("stop_token_ids", ()), *stops]
    params.setdefault("skip_special_tokens", not generation.keep_special_tokens)
    try:
        sampling_params = SamplingParams(
            **{_NAMES.get(name, name): value for name, value in params.items()},
            structured_outputs=StructuredOutputsParams(**constraints) if constraints else None,
            output_kind=RequestOutputKind.DELTA if generation.streamed else RequestOutputKind.FINAL_ONLY,
        )
    except (VLLMClientError, TypeError, ValueError) as error:
        raise ModelConfigurationError(f"vLLM refuses the sampling parameters: {error}") from error
    prompt: Any
    if generation.media:
        prompt = TokensPrompt(prompt_token_ids=generation.prompt_ids, multi_modal_data=generation.media)
    else:
        prompt = tokens_input(generation.prompt_ids)
    return EngineRequest(generation.request_id, prompt, sampling_params, adapters.get(lora), priority, cut_at)


class Outputs:
    """Makes pieces of what vLLM gives for one request."""

    def __init__(self, request: EngineRequest) -> None:
        self._cut_at = request.cut_at
        self._generated = 0
        self._extra: dict[str, Any] = {}

    def piece(self, output: Any) -> Piece:
        """The piece that a ``RequestOutput`` is."""
        completion = output.outputs[0]
        token_ids = list(completion.token_ids)
        self._generated += len(token_ids)
        if completion.logprobs:
            tokens = [_token(token, each) for token, each in zip(token_ids, completion.logprobs, strict=True)]
            self._extra.setdefault("logprobs", []).extend(tokens)
        if output.prompt_logprobs and "prompt_logprobs" not in self._extra:
            prompt = zip(output.prompt_token_ids, output.prompt_logprobs, strict=True)
            self._extra["prompt_logprobs"] = [None if each is None else _token(token, each) for token, each in prompt]
        piece = Piece(completion.text, token_ids)
        if output.finished:
            piece.finish_reason = completion.finish_reason or "stop"
            piece.usage = Usage(len(output.prompt_token_ids), self._generated, output.num_cached_tokens or 0)
            piece.extra = self._extra
            if isinstance(completion.stop_reason, str) or completion.stop_reason in self._cut_at:
                piece.stopped_by = str(completion.stop_reason)
        return piece


def _token(token: int, alternatives: Mapping[int, Any]) -> dict[str, Any]:
    """The log-probability of a token and of the likeliest alternatives, in OpenAI's form with the ids beside."""
    entries = {
        each: {"token": entry.decoded_token or "", "token_id": each, "logprob": min(entry.logprob, 0.0)}
        for each, entry in alternatives.items()
    }
    ranked = sorted(entries.values(), key=lambda entry: -entry["logprob"])
    return {**entries[token], "top_logprobs": ranked}
