"""Models in GGUF files, run in process by llama.cpp."""

from lagent_llamacpp.model import AsyncLlamaCppModel, LlamaCppModel

__all__ = ["AsyncLlamaCppModel", "LlamaCppModel"]
