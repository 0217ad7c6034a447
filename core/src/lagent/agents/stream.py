"""Where lagent 0.5 has the agents for InternLM; they come with lagent-internlm."""

from __future__ import annotations

import importlib
from typing import Any

from lagent.registry import find_class

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(find_class("lagent.agents", "AgentForInternLM").__module__), name)
