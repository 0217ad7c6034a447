"""OpenAI and every OpenAI-compatible server as models of lagent, with fallback and recorded answers."""

from lagent_openai.dialects import DIALECTS, Dialect
from lagent_openai.fallback import AsyncFallback, Fallback
from lagent_openai.limits import TimeLimits
from lagent_openai.model import GPTAPI, AsyncGPTAPI
from lagent_openai.parts import file_part, image_part
from lagent_openai.recorded import AsyncRecorded, Recorded

__all__ = [
    "DIALECTS",
    "GPTAPI",
    "AsyncFallback",
    "AsyncGPTAPI",
    "AsyncRecorded",
    "Dialect",
    "Fallback",
    "Recorded",
    "TimeLimits",
    "file_part",
    "image_part",
]
