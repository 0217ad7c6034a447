"""The dialects with arguments in another notation than JSON. The chat templates of the models named are the source of the formats."""

from __future__ import annotations

from typing import ClassVar

import attrs

from lagent_parsers.dialect import DialectParser
from lagent_parsers.grammar import Block, Dialect
from lagent_parsers.reasoning import STYLES
from lagent_parsers.values import GemmaCall, PythonCalls, TaggedCall

_THINK = (STYLES["think"],)

_FUNCTION = TaggedCall(
    header=r"\s*(?P<name>[^\s<>]+)\s*>",
    head="{name}>\n",
    open="<parameter=",
    key=r"<parameter=(?P<key>[^<>]+)>",
    middle=">",
    close="</parameter>",
    padding="\n",
)


class Qwen3CoderParser(DialectParser):
    """``<function=name>`` with ``<parameter=key>`` in it: Qwen3-Coder, Nemotron 3, Step 3.5."""

    dialect: ClassVar = Dialect(
        (Block("<function=", _FUNCTION, ("</function>",)),),
        before="<tool_call>\n<function=",
        between="</function>\n</tool_call>\n<tool_call>\n<function=",
        after="</function>\n</tool_call>",
        section=("<tool_call>", "</tool_call>"),
        stop=("<tool_response>",),
    )


class SeedOssParser(DialectParser):
    """As Qwen3-Coder, with ``<seed:tool_call>`` round it: Seed-OSS."""

    dialect: ClassVar = Dialect(
        (Block("<function=", attrs.evolve(_FUNCTION, padding=""), ("</function>",)),),
        before="<seed:tool_call>\n<function=",
        between="</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=",
        after="</function>\n</seed:tool_call>",
        hidden=("<seed:tool_call>", "</seed:tool_call>", "<seed:eos>"),
        reasoning=(STYLES["seed"],),
    )


class MiniMaxParser(DialectParser):
    """``<invoke name="name">`` with ``<parameter name="key">`` in it, inside ``<minimax:tool_call>``: MiniMax M2."""

    dialect: ClassVar = Dialect(
        (
            Block(
                "<invoke name=",
                TaggedCall(
                    header=r"\s*[\"']?(?P<name>[^\s\"'<>]+)[\"']?\s*>",
                    head='"{name}">\n',
                    open='<parameter name="',
                    key=r"<parameter name=[\"']?(?P<key>[^\"'<>]+)[\"']?>",
                    middle='">',
                    close="</parameter>",
                    value_open="<parameter name=",
                ),
                ("</invoke>",),
            ),
        ),
        before="<minimax:tool_call>\n<invoke name=",
        between="</invoke>\n<invoke name=",
        after="</invoke>\n</minimax:tool_call>",
        hidden=("<minimax:tool_call>", "</minimax:tool_call>"),
        reasoning=_THINK,
    )


class DeepSeekV32Parser(DialectParser):
    """``<｜DSML｜invoke name="name">`` with typed ``<｜DSML｜parameter>`` in it: DeepSeek V3.2."""

    dialect: ClassVar = Dialect(
        (
            Block(
                "<｜DSML｜invoke name=",
                TaggedCall(
                    header=r"\s*\"?(?P<name>[^\s\"<>]+)\"?\s*>",
                    head='"{name}">\n',
                    open='<｜DSML｜parameter name="',
                    key=r"<｜DSML｜parameter name=\"(?P<key>[^\"<>]+)\"(?: string=\"(?P<string>true|false)\")?>",
                    middle='" string="{string}">',
                    close="</｜DSML｜parameter>",
                ),
                ("</｜DSML｜invoke>",),
            ),
        ),
        before="\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=",
        between="</｜DSML｜invoke>\n<｜DSML｜invoke name=",
        after="</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        glue="",
        hidden=("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜end▁of▁sentence｜>"),
        reasoning=_THINK,
    )


class Step3Parser(DialectParser):
    """``<steptml:invoke name="name">`` with ``<steptml:parameter name="key">`` in it, between DeepSeek-like markers: Step 3."""

    dialect: ClassVar = Dialect(
        (
            Block(
                "<steptml:invoke name=",
                TaggedCall(
                    header=r"\s*\"?(?P<name>[^\s\"<>]+)\"?\s*>",
                    head='"{name}">\n',
                    open='<steptml:parameter name="',
                    key=r"<steptml:parameter name=\"(?P<key>[^\"<>]+)\">",
                    middle='">',
                    close="</steptml:parameter>",
                ),
                ("</steptml:invoke>",),
            ),
        ),
        before="<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=",
        between="</steptml:invoke><｜tool_call_end｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=",
        after="</steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
        glue="",
        hidden=(
            "<｜tool_calls_begin｜>",
            "<｜tool_calls_end｜>",
            "<｜tool_call_begin｜>function<｜tool_sep｜>",
            "<｜tool_call_end｜>",
        ),
        reasoning=_THINK,
    )


class Glm45Parser(DialectParser):
    """``<tool_call>``, the name, then ``<arg_key>`` and ``<arg_value>`` in turns: GLM 4.5 to 4.7."""

    dialect: ClassVar = Dialect(
        (
            Block(
                "<tool_call>",
                TaggedCall(
                    header=r"\s*(?P<name>[\w.:/-]+)\s*(?=<arg_key>|\{|\Z)",
                    head="{name}\n",
                    open="<arg_key>",
                    key=r"<arg_key>(?P<key>[^<>]+)</arg_key>\s*<arg_value>",
                    middle="</arg_key>\n<arg_value>",
                    close="</arg_value>",
                    value_open="<arg_value>",
                ),
                ("</tool_call>",),
            ),
        ),
        before="<tool_call>",
        between="</tool_call>\n<tool_call>",
        after="</tool_call>",
        stop=("<|observation|>",),
        reasoning=_THINK,
    )


# Python ----------------------------------------------------------------------------------------------------------


class PythonicParser(DialectParser):
    """A list of Python calls, ``[name(key=value)]``, alone or at the start of a line: Llama 3.2 and 4, ToolACE."""

    dialect: ClassVar = Dialect(
        (Block("[", PythonCalls(bare=True), balanced=True),),
        before="[",
        between=", ",
        after="]",
        hidden=("<|python_start|>", "<|python_end|>", "<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>"),
    )


class Olmo3Parser(DialectParser):
    """``<function_calls>`` round Python calls on lines of their own: Olmo 3."""

    dialect: ClassVar = Dialect(
        (Block("<function_calls>", PythonCalls(), ("</function_calls>",)),),
        before="<function_calls>\n",
        after="\n</function_calls>",
        reasoning=_THINK,
    )


class Lfm2Parser(DialectParser):
    """``<|tool_call_start|>`` round a list of Python calls: LFM2."""

    dialect: ClassVar = Dialect(
        (Block("<|tool_call_start|>", PythonCalls(), ("<|tool_call_end|>",)),),
        before="<|tool_call_start|>[",
        between=", ",
        after="]<|tool_call_end|>",
        reasoning=_THINK,
    )


class GemmaParser(DialectParser):
    """A ``tool_code`` block of Python calls: Gemma 2 and 3, as Google's guide to function calling tells them."""

    dialect: ClassVar = Dialect(
        (Block("```tool_code", PythonCalls(), ("```",), line_start=True),),
        before="```tool_code\n",
        after="\n```",
        stop=("```tool_output",),
    )


# Gemma's own notation --------------------------------------------------------------------------------------------


class FunctionGemmaParser(DialectParser):
    """``<start_function_call>call:name{key:<escape>text<escape>}<end_function_call>``: FunctionGemma."""

    dialect: ClassVar = Dialect(
        (Block("<start_function_call>", GemmaCall("<escape>"), ("<end_function_call>",)),),
        before="<start_function_call>",
        between="<end_function_call><start_function_call>",
        after="<end_function_call>",
        glue="",
        stop=("<start_function_response>",),
    )


class Gemma4Parser(DialectParser):
    """``<|tool_call>call:name{key:<|"|>text<|"|>}<tool_call|>``: Gemma 4."""

    dialect: ClassVar = Dialect(
        (Block("<|tool_call>", GemmaCall('<|"|>'), ("<tool_call|>", "<turn|>")),),
        before="<|tool_call>",
        between="<tool_call|><|tool_call>",
        after="<tool_call|>",
        glue="",
        stop=("<|tool_response>",),
        reasoning=(STYLES["gemma"],),
    )
