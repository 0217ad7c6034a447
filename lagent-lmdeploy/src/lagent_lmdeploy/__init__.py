"""LMDeploy for lagent: models in process, servers that it owns, and clients of running ones."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lagent_lmdeploy.model import AsyncLMDeployPipeline, LMDeployPipeline
    from lagent_lmdeploy.server import AsyncLMDeployClient, AsyncLMDeployServer, LMDeployClient, LMDeployServer

__all__ = [
    "AsyncLMDeployClient",
    "AsyncLMDeployPipeline",
    "AsyncLMDeployServer",
    "LMDeployClient",
    "LMDeployPipeline",
    "LMDeployServer",
]


def __getattr__(name: str) -> Any:
    """Import the module of the class only: a client needs no engine, and an engine no client."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{'model' if name.endswith('Pipeline') else 'server'}")
    return getattr(module, name)
