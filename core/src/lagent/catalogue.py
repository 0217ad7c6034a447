"""Which first-party distribution has what, so that an error can say what to install.

``first_party.json`` beside this module holds, for each distribution, the names that it registers by kind (models once for both
colours) and its classes; ``scripts/generate.py`` writes it from the entry points of the workspace.
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any

from lagent.discovery import installed

__all__ = ["class_hint", "component_hint", "owner_of_class"]

_ADVICE: dict[str, str] = {
    **dict.fromkeys(
        ["BaseAPILLM", "AsyncBaseAPILLM"],
        "derive from lagent.llms.BaseLLM or AsyncBaseLLM, or use the model 'openai' of lagent-openai",
    ),
    **dict.fromkeys(
        ["ClaudeAPI", "AsyncClaudeAPI", "SensenovaAPI"],
        "the service speaks OpenAI's protocol: pip install lagent-openai and pass its address as api_base",
    ),
    **dict.fromkeys(
        ["HFTransformer", "HFTransformerCasualLM", "HFTransformerChat"],
        "run the model in an engine: pip install lagent-vllm, lagent-lmdeploy or lagent-llamacpp",
    ),
}
"""What to do in place of a class of lagent 0.5 that no distribution has."""


def component_hint(kind: str, name: str) -> str | None:
    """How to get the component, if a first-party distribution registers one of this kind under this name."""
    kind = kind.removeprefix("async_")
    owner = next((owner for owner, has in _first_party().items() if name in has.get(kind, ())), None)
    return _install(owner) if owner else None


def owner_of_class(name: str) -> str | None:
    """The first-party distribution that has this class."""
    return next((owner for owner, has in _first_party().items() if name in has["classes"]), None)


def class_hint(name: str) -> str | None:
    """How to get the class, if a first-party distribution has it, or what has come in its place."""
    return _install(owner) if (owner := owner_of_class(name)) else _ADVICE.get(name)


@functools.cache
def _first_party() -> dict[str, dict[str, list[str]]]:
    data: Any = json.loads(files("lagent").joinpath("first_party.json").read_text(encoding="utf-8"))
    return data  # type: ignore[no-any-return]


def _install(owner: str) -> str:
    found = installed()
    if owner in found.damaged:
        return f"it comes with {owner}, whose metadata cannot be read: pip install --force-reinstall {owner}"
    if any(entry.distribution == owner for entry in found.excluded):
        return f"it comes with {owner}, which LAGENT_PLUGINS or LAGENT_DISABLE_PLUGINS keeps out"
    if any(entry.distribution == owner for entries in found.entries.values() for entry in entries):
        return f"the installed {owner} does not have it: pip install --upgrade {owner}"
    return f"it comes with {owner}, which is not installed: pip install {owner}"
