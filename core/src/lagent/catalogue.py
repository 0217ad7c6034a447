"""Which first-party distribution has what, so that an error can say what to install. A test compares it with the workspace."""

from __future__ import annotations

from lagent.discovery import installed

__all__ = ["class_hint", "component_hint", "owner_of_class"]

_COMPONENTS: dict[str, dict[str, str]] = {
    "lagent-echo": {"llms": "echo"},
    "lagent-llamacpp": {"llms": "llamacpp"},
    "lagent-lmdeploy": {"llms": "lmdeploy lmdeploy-server lmdeploy-client"},
    "lagent-openai": {"llms": "openai fallback recorded"},
    "lagent-sqlite": {"memory": "sqlite"},
    "lagent-vllm": {"llms": "vllm vllm-server"},
}
"""The names that each distribution registers, by kind; models are listed once for both colours."""

_CLASSES: dict[str, str] = {
    "lagent-actions": (
        "ArxivSearch AsyncArxivSearch BINGMap AsyncBINGMap GoogleSearch AsyncGoogleSearch GoogleScholar AsyncGoogleScholar "
        "IPythonInterpreter AsyncIPythonInterpreter IPythonInteractive AsyncIPythonInteractive IPythonInteractiveManager "
        "PythonInterpreter AsyncPythonInterpreter PPT AsyncPPT WebBrowser AsyncWebBrowser"
    ),
    "lagent-echo": "EchoModel AsyncEchoModel",
    "lagent-internlm": (
        "AgentForInternLM AsyncAgentForInternLM MathCoder AsyncMathCoder InternLMToolAggregator InternLMActionProcessor "
        "ActionPreprocessor"
    ),
    "lagent-llamacpp": "LlamaCppModel AsyncLlamaCppModel",
    "lagent-lmdeploy": (
        "LMDeployPipeline AsyncLMDeployPipeline LMDeployServer AsyncLMDeployServer LMDeployClient AsyncLMDeployClient"
    ),
    "lagent-openai": "GPTAPI AsyncGPTAPI",
    "lagent-parsers": "CustomFormatParser JSONParser ToolParser InterpreterParser PluginParser MixedToolParser",
    "lagent-sqlite": "SQLiteStore",
    "lagent-vllm": "VllmModel AsyncVllmModel VllmServer AsyncVllmServer",
}
"""The classes of each distribution that can be had from core's packages, those of lagent 0.5 among them."""

_ADVICE: dict[str, str] = {
    **dict.fromkeys(
        ["BaseAPILLM", "AsyncBaseAPILLM"],
        "derive from lagent.llms.BaseLLM or AsyncBaseLLM, or use the model 'openai' of lagent-openai",
    ),
    "SensenovaAPI": "its service speaks OpenAI's protocol: pip install lagent-openai and pass its address as api_base",
    **dict.fromkeys(
        ["ClaudeAPI", "AsyncClaudeAPI"],
        "its service speaks OpenAI's protocol too: pip install lagent-openai and pass its address as api_base",
    ),
    **dict.fromkeys(
        ["HFTransformer", "HFTransformerCasualLM", "HFTransformerChat"],
        "run the model in an engine: pip install lagent-vllm, lagent-lmdeploy or lagent-llamacpp",
    ),
}
"""What to do in place of a class of lagent 0.5 that no distribution has."""


def component_hint(kind: str, name: str) -> str | None:
    """How to get the component, if a first-party distribution registers one of this kind under this name."""
    owner = next(
        (dist for dist, kinds in _COMPONENTS.items() if name in kinds.get(kind.removeprefix("async_"), "").split()), None
    )
    return _install(owner) if owner else None


def owner_of_class(name: str) -> str | None:
    """The first-party distribution that has this class."""
    return next((dist for dist, names in _CLASSES.items() if name in names.split()), None)


def class_hint(name: str) -> str | None:
    """How to get the class, if a first-party distribution has it, or what has come in its place."""
    return _install(owner) if (owner := owner_of_class(name)) else _ADVICE.get(name)


def _install(owner: str) -> str:
    found = installed()
    if owner in found.damaged:
        return f"it comes with {owner}, whose metadata cannot be read: pip install --force-reinstall {owner}"
    if any(entry.distribution == owner for entry in found.excluded):
        return f"it comes with {owner}, which LAGENT_PLUGINS or LAGENT_DISABLE_PLUGINS keeps out"
    if any(entry.distribution == owner for entries in found.entries.values() for entry in entries):
        return f"the installed {owner} does not have it: pip install --upgrade {owner}"
    return f"it comes with {owner}, which is not installed: pip install {owner}"
