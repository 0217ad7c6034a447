"""Models: the interface, and what installed distributions add to it."""

from typing import Any

from lagent.llms.base import AsyncBaseLLM, AsyncLLMMixin, BaseLLM
from lagent.llms.meta_template import INTERNLM2_META, LMTemplateParser, check_template
from lagent.llms.request import Capabilities, ModelRequest, is_image, without_examples

__all__ = [
    "INTERNLM2_META",
    "AsyncBaseLLM",
    "AsyncLLMMixin",
    "BaseLLM",
    "Capabilities",
    "LMTemplateParser",
    "ModelRequest",
    "check_template",
    "is_image",
    "without_examples",
]


def __getattr__(name: str) -> Any:
    from lagent.registry import find_class

    return find_class(__name__, name)
