"""From lagent's sampling parameters to LMDeploy's ``GenerationConfig``."""

from __future__ import annotations

from typing import Any

from lagent.errors import ModelConfigurationError
from lagent_engines import Generation

__all__ = ["CONSTRAINTS", "PARAMETERS", "generation_config"]

_NAMES = {
    "seed": "random_seed",
    **{
        name: name
        for name in (
            *("max_new_tokens", "min_new_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
            *("repetition_ngram_size", "repetition_ngram_threshold", "stop_token_ids", "bad_words", "bad_token_ids"),
            *("ignore_eos", "skip_special_tokens", "logits_processors"),
        )
    },
}
"""The sampling parameters that LMDeploy takes as they are, under lagent's names, with LMDeploy's."""

CONSTRAINTS = frozenset({"regex", "grammar", "response_format"})
"""The sampling parameters that hold the model to a form."""

PARAMETERS = CONSTRAINTS | {*_NAMES, "do_sample", "logprobs", "lora", "stop_words"}
"""All the sampling parameters."""


def generation_config(generation: Generation, room: int, stop_token_ids: list[int]) -> Any:
    """The ``GenerationConfig`` for a request.

    Args:
        generation: the request.
        room: tokens that fit into the context window behind the prompt.
        stop_token_ids: the tokens that end the model's turns.

    Raises:
        ModelConfigurationError: a parameter cannot have this value, or two exclude each other.
    """
    from lmdeploy import GenerationConfig

    params = {_NAMES[name]: value for name, value in generation.params.items() if name in _NAMES}
    params.setdefault("skip_special_tokens", not generation.keep_special_tokens)
    # LMDeploy leaves the model's own ones out where a request has some.
    params["stop_token_ids"] = [*params.get("stop_token_ids", ()), *stop_token_ids]
    params["max_new_tokens"] = min(params.get("max_new_tokens", room), room)
    params.update(_choice(generation.params))
    if logprobs := generation.params.get("logprobs"):
        params["logprobs"] = int(logprobs)
    params["response_format"] = _response_format(generation)
    # The token that ended the turn belongs to what was generated: prompts of later turns continue it.
    params["include_stop_str_in_output"] = True
    try:
        return GenerationConfig(**params)
    except (AssertionError, TypeError, ValueError) as error:
        given = {name: value for name, value in generation.params.items() if name in _NAMES}
        raise ModelConfigurationError(
            f"LMDeploy refuses the sampling parameters {given}: {error or 'a value is out of range'}"
        ) from error


def _choice(params: dict[str, Any]) -> dict[str, Any]:
    """How the next token is chosen."""
    if params.get("do_sample") is not False and params.get("temperature") != 0 and params.get("top_k") != 1:
        return {"do_sample": True}
    # Without do_sample, LMDeploy leaves the repetition penalty out; with one token to choose from, the result is the same.
    return {"do_sample": params.get("repetition_penalty", 1.0) != 1.0, "top_k": 1, "temperature": 1.0}


def _response_format(generation: Generation) -> dict[str, Any] | None:
    """The form that the answer has to have, as LMDeploy takes it."""
    params = generation.params
    forms: dict[str, Any] = {name: params[name] for name in sorted(CONSTRAINTS) if name in params}
    if generation.output_schema is not None:
        forms["output_schema (or a tool_choice that demands a call)"] = generation.output_schema
    if len(forms) > 1:
        raise ModelConfigurationError(f"{' and '.join(forms)} exclude each other: give one of them")
    if generation.output_schema is not None:
        # Small models lose themselves in white space where any amount of it is allowed.
        return _tag({"type": "json_schema", "json_schema": generation.output_schema, "max_whitespace_cnt": 1})
    if "regex" in params:
        return {"type": "regex_schema", "regex_schema": params["regex"]}
    if "grammar" in params:
        return _tag({"type": "grammar", "grammar": params["grammar"]})
    form: dict[str, Any] | None = params.get("response_format")
    return form


def _tag(form: dict[str, Any]) -> dict[str, Any]:
    """``form`` as XGrammar's structural tags have it: https://xgrammar.mlc.ai/docs/structural_tag/structural_tag.html"""
    return {"type": "structural_tag", "format": form}
