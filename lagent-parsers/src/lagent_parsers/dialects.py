"""The dialects whose tool calls are JSON objects. The chat templates of the models named are the source of the formats."""

from __future__ import annotations

from typing import ClassVar

from lagent.prompts.parsers import StrParser
from lagent_parsers.codecs import CodeCall, JsonCalls
from lagent_parsers.dialect import DialectParser
from lagent_parsers.grammar import Block, Dialect
from lagent_parsers.reasoning import STYLES

_THINK = (STYLES["think"],)


class ReasoningParser(DialectParser):
    """Separates reasoning from the answer and reads no tool calls."""

    dialect: ClassVar = Dialect(reasoning=_THINK)
    format_tools = StrParser.format_tools  # so that the tools go to the model itself


# JSON between markers --------------------------------------------------------------------------------------------


class HermesParser(DialectParser):
    """``<tool_call>`` round a JSON object: Hermes 2 and 3, Qwen 2.5 and 3, Granite 4 and many others."""

    dialect: ClassVar = Dialect(
        (Block("<tool_call>", JsonCalls(), ("</tool_call>",)),),
        before="<tool_call>\n",
        between="\n</tool_call>\n<tool_call>\n",
        after="\n</tool_call>",
        stop=("<tool_response>",),
    )


class LongCatParser(DialectParser):
    """``<longcat_tool_call>`` round a JSON object: LongCat-Flash."""

    dialect: ClassVar = Dialect(
        (Block("<longcat_tool_call>", JsonCalls(), ("</longcat_tool_call>",)),),
        before="<longcat_tool_call>\n",
        between="\n</longcat_tool_call>\n<longcat_tool_call>\n",
        after="\n</longcat_tool_call>",
    )


class GraniteParser(DialectParser):
    """``<|tool_call|>`` or ``<tool_call>``, then a JSON array of calls: Granite 3."""

    dialect: ClassVar = Dialect(
        (Block("<|tool_call|>", JsonCalls(), balanced=True), Block("<tool_call>", JsonCalls(), balanced=True)),
        before="<|tool_call|>[",
        between=", ",
        after="]",
        section=("</tool_call>", "<|/tool_call|>"),
    )


class Phi4Parser(DialectParser):
    """``functools`` or ``<|tool_call|>``, then a JSON array of calls: Phi-4-mini."""

    dialect: ClassVar = Dialect(
        (Block("functools", JsonCalls(), balanced=True), Block("<|tool_call|>", JsonCalls(), ("<|/tool_call|>",))),
        before="functools[",
        between=", ",
        after="]",
    )


class ToolCallsParser(DialectParser):
    """``<tool_calls>`` round a JSON array of calls: Jamba, Hunyuan-A13B."""

    dialect: ClassVar = Dialect(
        (Block("<tool_calls>", JsonCalls(), ("</tool_calls>",)),),
        before="<tool_calls>[",
        between=", ",
        after="]</tool_calls>",
        section=("<answer>", "</answer>"),
        reasoning=_THINK,
    )


class NemotronParser(DialectParser):
    """``<TOOLCALL>`` round a JSON array of calls: Nemotron Nano and Super before version 3."""

    dialect: ClassVar = Dialect(
        (Block("<TOOLCALL>", JsonCalls(), ("</TOOLCALL>",)),),
        before="<TOOLCALL>[",
        between=", ",
        after="]</TOOLCALL>",
        reasoning=_THINK,
    )


class CohereParser(DialectParser):
    """``<|START_ACTION|>`` round a JSON array of calls: Command R7B and Command A."""

    dialect: ClassVar = Dialect(
        (
            Block(
                "<|START_ACTION|>",
                JsonCalls(arguments="parameters", name="tool_name", id="tool_call_id"),
                ("<|END_ACTION|>",),
            ),
        ),
        before="<|START_ACTION|>[",
        between=", ",
        after="]<|END_ACTION|>",
        hidden=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
        reasoning=(STYLES["cohere"],),
    )


class InternLMParser(DialectParser):
    """``<|action_start|>`` with ``<|plugin|>`` and a JSON object, or with ``<|interpreter|>`` and code: InternLM 2 and 3.

    Code becomes a call of ``IPythonInteractive`` with the argument ``command``.
    """

    dialect: ClassVar = Dialect(
        (
            Block("<|action_start|><|plugin|>", JsonCalls(arguments="parameters"), ("<|action_end|>",)),
            Block("<|action_start|> <|plugin|>", JsonCalls(arguments="parameters"), ("<|action_end|>",)),
            Block(
                "<|action_start|><|interpreter|>",
                CodeCall("IPythonInteractive", "command"),
                ("<|action_end|>",),
            ),
        ),
        before="<|action_start|><|plugin|>\n",
        between="<|action_end|>\n<|action_start|><|plugin|>\n",
        after="<|action_end|>\n",
    )


# JSON without markers of its own ---------------------------------------------------------------------------------


class Llama3JsonParser(DialectParser):
    """A JSON object with ``name`` and ``parameters``, alone or at the start of a line, perhaps after ``<|python_tag|>``: Llama 3."""

    dialect: ClassVar = Dialect(
        (
            Block("{", JsonCalls(arguments="parameters", bare=True), balanced=True),
            Block("[", JsonCalls(arguments="parameters", bare=True), balanced=True),
        ),
        between="; ",
        hidden=("<|python_tag|>", "<|eom_id|>", "<|eot_id|>"),
        section=(";",),
    )


class CodeBlockParser(DialectParser):
    """A Markdown code block with a JSON object: models that were merely told to call tools so.

    Only an object with ``name`` and ``arguments`` or ``parameters`` is a call; other code stays in the content.
    """

    dialect: ClassVar = Dialect(
        tuple(
            Block(fence, JsonCalls(bare=True), ("```",), line_start=True)
            for fence in ("```json", "```tool_call", "```tool_calls", "```tool", "```function_call", "```\n")
        ),
        before="```json\n",
        between="\n```\n```json\n",
        after="\n```",
    )
