"""What the servers that speak OpenAI's protocol understand, as data: one entry for each kind of server."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

from lagent.errors import ModelConfigurationError

__all__ = ["DIALECTS", "Dialect", "dialect_named", "dialect_of"]


def _same(names: str) -> dict[str, str]:
    return {name: name for name in names.split()}


@define(frozen=True)
class Dialect:
    """How one kind of server differs from the others.

    Attributes:
        name: what users call it.
        parameters: the sampling parameters that the server knows, under lagent's names, each with its path in the body of a Chat
            Completions request (``"a.b"`` is ``b`` inside ``a``).
        owned_by: ``owned_by`` of the models under ``/models``, by which the server is told apart.
        probe: where that tells nothing: a path of the server that answers with a JSON object, and a field that only its object has.
        reasoning: the fields of a message that hold reasoning text.
        roles: roles that the server does not know, with the role that stands in.
        strict_tools: whether arguments follow the schema only if the function is marked ``strict`` where a call is required.
        request_id_header: the header that gives the request the id under which the server logs it.
    """

    name: str
    parameters: Mapping[str, str] = field(repr=False)
    owned_by: tuple[str, ...] = ()
    probe: tuple[str, str] | None = None
    reasoning: tuple[str, ...] = ("reasoning_content", "reasoning")
    roles: Mapping[str, str] = field(factory=lambda: {"developer": "system"})
    strict_tools: bool = False
    request_id_header: str | None = None

    def place(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a request's body that holds ``parameters``; those that are ``None`` or an empty list are left out.

        Raises:
            ModelConfigurationError: the server does not know one of them.
        """
        body: dict[str, Any] = {}
        for name, value in parameters.items():
            if value is None or value == []:
                continue
            if name not in self.parameters:
                raise ModelConfigurationError(_unknown(name, f"{self.name!r} servers", self.parameters))
            *outer, last = self.parameters[name].split(".")
            target = body
            for key in outer:
                target = target.setdefault(key, {})
            target[last] = value
        return body


def _unknown(name: str, whom: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches({"max_tokens": "max_new_tokens", "stop": "stop_words"}.get(name, name), known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"{whom} know no parameter {name!r}: {hint}To send it all the same, put it into extra_body={{{name!r}: …}}; "
        f"known are {', '.join(sorted(known))}"
    )


_COMMON = {
    **_same("temperature top_p seed frequency_penalty presence_penalty response_format"),
    "stop_words": "stop",
    "max_new_tokens": "max_tokens",
}
_CHOICES = {**_COMMON, **_same("n logprobs top_logprobs logit_bias user")}
_LOCAL = _same("top_k min_p repetition_penalty ignore_eos skip_special_tokens chat_template_kwargs")

DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "openai",
            {
                **_CHOICES,
                "max_new_tokens": "max_completion_tokens",
                **_same("parallel_tool_calls reasoning_effort verbosity service_tier store metadata modalities audio prediction"),
                **_same("prompt_cache_key prompt_cache_retention safety_identifier web_search_options"),
            },
            owned_by=("openai", "system", "openai-internal"),
            roles={},
            request_id_header="X-Client-Request-Id",
        ),
        # https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
        Dialect(
            "vllm",
            {
                **_CHOICES,
                **_LOCAL,
                **_same(
                    "parallel_tool_calls reasoning_effort include_reasoning min_tokens length_penalty stop_token_ids bad_words"
                ),
                **_same("allowed_token_ids include_stop_str_in_output truncate_prompt_tokens prompt_logprobs return_token_ids"),
                **_same("add_generation_prompt continue_final_message chat_template documents mm_processor_kwargs priority"),
                **_same("cache_salt thinking_token_budget vllm_xargs spaces_between_special_tokens"),
                "grammar": "structured_outputs.grammar",
                "regex": "structured_outputs.regex",
                "choice": "structured_outputs.choice",
            },
            owned_by=("vllm",),
            reasoning=("reasoning", "reasoning_content"),
            strict_tools=True,
            request_id_header="X-Request-Id",
        ),
        # https://lmdeploy.readthedocs.io/en/latest/llm/api_server.html
        Dialect(
            "lmdeploy",
            {
                **_CHOICES,
                **_LOCAL,
                **_same("parallel_tool_calls reasoning_effort min_new_tokens include_stop_str_in_output return_token_ids"),
                **_same("repetition_ngram_size repetition_ngram_threshold enable_thinking mm_processor_kwargs media_io_kwargs"),
                **_same("spaces_between_special_tokens"),
            },
            owned_by=("lmdeploy",),
        ),
        # https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
        Dialect(
            "llamacpp",
            {
                **_CHOICES,
                **_same("top_k min_p typical_p repeat_last_n ignore_eos chat_template_kwargs parallel_tool_calls grammar"),
                **_same("dynatemp_range dynatemp_exponent dry_multiplier dry_base dry_allowed_length dry_penalty_last_n"),
                **_same("dry_sequence_breakers xtc_probability xtc_threshold mirostat mirostat_tau mirostat_eta samplers"),
                **_same("cache_prompt id_slot n_keep min_keep reasoning_format timings_per_token post_sampling_probs"),
                "repetition_penalty": "repeat_penalty",
            },
            owned_by=("llamacpp",),
            probe=("/props", "default_generation_settings"),
        ),
        # https://docs.sglang.ai/basic_usage/openai_api_completions.html
        Dialect(
            "sglang",
            {
                **_CHOICES,
                **_LOCAL,
                **_same("parallel_tool_calls reasoning_effort min_tokens stop_token_ids stop_regex no_stop_trim regex"),
                **_same(
                    "cache_salt priority continue_final_message separate_reasoning stream_reasoning lora_path custom_logit_processor"
                ),
                "grammar": "ebnf",
            },
            owned_by=("sglang",),
        ),
        # https://docs.ollama.com/api/openai-compatibility
        Dialect(
            "ollama",
            {**_COMMON, **_same("reasoning_effort logprobs top_logprobs")},
            owned_by=("library",),
            probe=("/api/tags", "models"),
            reasoning=("reasoning",),
        ),
        # https://huggingface.co/docs/text-generation-inference/messages_api
        Dialect("tgi", {**_CHOICES, **_same("tool_prompt")}, probe=("/info", "max_input_tokens")),
        # Any other server: what every one of them takes.
        Dialect("compatible", {**_CHOICES, **_same("parallel_tool_calls reasoning_effort")}),
    )
}
"""The dialects by name."""


def dialect_named(name: str) -> Dialect:
    """The dialect that users call ``name``.

    Raises:
        ModelConfigurationError: there is none.
    """
    try:
        return DIALECTS[name]
    except KeyError:
        raise ModelConfigurationError(f"no dialect {name!r}: choose 'auto' or one of {', '.join(DIALECTS)}") from None


def dialect_of(models: Any) -> Dialect | None:
    """The dialect of the server that lists ``models`` (the body of ``GET /models``), if that tells."""
    listed = models.get("data") if isinstance(models, Mapping) else None
    owners = {model.get("owned_by") for model in listed or () if isinstance(model, Mapping)}
    return next((dialect for dialect in DIALECTS.values() if owners.intersection(dialect.owned_by)), None)
