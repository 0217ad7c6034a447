"""OpenAI and every OpenAI-compatible server as models of lagent, with fallback and recorded answers."""

from lagent_openai.dialects import DIALECTS, Dialect
from lagent_openai.limits import TimeLimits
from lagent_openai.model import GPTAPI, AsyncGPTAPI

__all__ = ["DIALECTS", "GPTAPI", "AsyncGPTAPI", "Dialect", "TimeLimits"]
