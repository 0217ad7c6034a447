"""vLLM as models of lagent: in process, and as a server that is started or already runs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lagent_vllm.model import AsyncVllmModel, VllmModel
    from lagent_vllm.server import AsyncVllmServer, VllmServer

__all__ = ["AsyncVllmModel", "AsyncVllmServer", "VllmModel", "VllmServer"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: the server needs an HTTP client, the models do not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'server' if name.endswith('Server') else 'model'}"), name)
