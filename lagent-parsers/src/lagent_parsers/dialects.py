"""The tool-call dialects."""

from __future__ import annotations

from typing import ClassVar

from lagent_parsers.codecs import JsonCalls
from lagent_parsers.dialect import DialectParser
from lagent_parsers.grammar import Block, Dialect

__all__ = ["HermesParser"]


class HermesParser(DialectParser):
    """``<tool_call>`` round a JSON object: Hermes 2 and 3, Qwen 2.5 and 3, Granite 4, and many others.

    Source: the model card of Hermes 2 Pro, and the chat template of Qwen 2.5.
    """

    dialect: ClassVar = Dialect(
        (Block("<tool_call>", JsonCalls(), ("</tool_call>",)),),
        before="<tool_call>\n",
        between="\n</tool_call>\n<tool_call>\n",
        after="\n</tool_call>",
        stop=("<tool_response>",),
    )
