"""The dialects whose tool calls are a name and JSON arguments. The chat templates of the models named are the source of the formats."""

from __future__ import annotations

from typing import ClassVar

import attrs

from lagent_parsers.codecs import JSON_QUOTES, JsonCalls, NamedCall, Quote, Read, Tools
from lagent_parsers.dialect import DialectParser
from lagent_parsers.grammar import Block, Dialect
from lagent_parsers.reasoning import STYLES

_THINK = (STYLES["think"],)


class _MistralCalls(NamedCall):
    """The newer form, or the older one: a JSON array of calls."""

    def read(self, text: str, complete: bool, tools: Tools) -> Read:
        read = JsonCalls().read if text.lstrip()[:1] in ("[", "{") else super().read
        return read(text, complete, tools)


class MistralParser(DialectParser):
    """``[TOOL_CALLS]``, then a JSON array of calls (Mistral 7B to Small 3.1) or ``name[ARGS]{…}`` (from Small 3.2 and Magistral on)."""

    dialect: ClassVar = Dialect(
        (
            Block(
                "[TOOL_CALLS]",
                _MistralCalls(
                    r"\s*(?P<name>[^\s\[{]+)\s*(?:\[CALL_ID\]\s*(?P<id>[^\s\[{]+)\s*)?(?:\[ARGS\])?",
                    "{name}{id}[ARGS]{arguments}",
                    id_form="[CALL_ID]{id}",
                    quotes=(*JSON_QUOTES, Quote("[ARGS", "]"), Quote("[CALL_ID", "]")),
                ),
                balanced=True,
            ),
        ),
        before="[TOOL_CALLS]",
        between="[TOOL_CALLS]",
        glue="",
        reasoning=(STYLES["mistral"],),
    )


class DeepSeekV3Parser(DialectParser):
    """``<｜tool▁call▁begin｜>``, the name, and arguments in a JSON code block: DeepSeek V3 of December 2024 and March 2025."""

    dialect: ClassVar = Dialect(
        (
            Block(
                "<｜tool▁call▁begin｜>",
                NamedCall(
                    r"\s*(?:\w+\s*<｜tool▁sep｜>\s*)?(?P<name>[^\s<{`]+)\s*(?:```(?:json)?)?",
                    "function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```",
                    footer="```",
                ),
                ("<｜tool▁call▁end｜>",),
            ),
        ),
        before="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
        between="<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>",
        after="<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        glue="",
        hidden=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜end▁of▁sentence｜>"),
        stop=("<｜tool▁outputs▁begin｜>",),
    )


class DeepSeekR1Parser(DeepSeekV3Parser):
    """The dialect of DeepSeek V3 with reasoning, whose begin marker the chat template writes: DeepSeek R1."""

    dialect: ClassVar = attrs.evolve(DeepSeekV3Parser.dialect, reasoning=_THINK, reasoning_started=True)


class DeepSeekV31Parser(DialectParser):
    """``<｜tool▁call▁begin｜>``, the name, ``<｜tool▁sep｜>`` and the arguments: DeepSeek V3.1."""

    dialect: ClassVar = Dialect(
        (
            Block(
                "<｜tool▁call▁begin｜>",
                NamedCall(r"\s*(?P<name>[^\s<{`]+)\s*<｜tool▁sep｜>", "{name}<｜tool▁sep｜>{arguments}"),
                ("<｜tool▁call▁end｜>",),
            ),
        ),
        before="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
        between="<｜tool▁call▁end｜><｜tool▁call▁begin｜>",
        after="<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        glue="",
        hidden=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜end▁of▁sentence｜>"),
        reasoning=_THINK,
    )


class KimiK2Parser(DialectParser):
    """``<|tool_call_begin|>``, the id ``functions.name:0`` and the arguments: Kimi K2."""

    dialect: ClassVar = Dialect(
        (
            Block(
                "<|tool_call_begin|>",
                NamedCall(
                    r"\s*(?P<id>(?:functions\.)?(?P<name>[^\s:<]+)(?::\d+)?)\s*<\|tool_call_argument_begin\|>",
                    "{id}<|tool_call_argument_begin|>{arguments}",
                    default_id="functions.{name}:{place}",
                ),
                ("<|tool_call_end|>",),
            ),
        ),
        before="<|tool_calls_section_begin|><|tool_call_begin|>",
        between="<|tool_call_end|><|tool_call_begin|>",
        after="<|tool_call_end|><|tool_calls_section_end|>",
        glue="",
        hidden=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        reasoning=_THINK,
    )


class FunctionaryParser(DialectParser):
    """``<function=name>{…}</function>``: Functionary 3.1, and Llama 3.1 when told to."""

    dialect: ClassVar = Dialect(
        (Block("<function=", NamedCall(r"(?P<name>[^\s>{]+)\s*>", "{name}>{arguments}"), ("</function>",)),),
        before="<function=",
        between="</function>\n<function=",
        after="</function>",
        hidden=("<|eom_id|>", "<|eot_id|>"),
    )


class FunctionaryV32Parser(DialectParser):
    """``>>>name``, then the arguments on the next line; ``>>>all`` for text: Functionary 3.2. The chat template writes the first ``>>>``."""

    dialect: ClassVar = Dialect(
        (Block(">>>", NamedCall(r"(?P<name>[^\s{]+)[ \t]*\n", "{name}\n{arguments}", text=True), line_start=True),),
        before=">>>",
        between="\n>>>",
        hidden=(">>>all\n", "<|eom_id|>", "<|eot_id|>"),
        lead=">>>",
        before_content=">>>all\n",
    )


_HARMONY_CALL = NamedCall(
    r"(?:functions\.)?(?P<name>[^\s<]+)(?=[\s<]).*?<\|message\|>",
    "functions.{name}<|channel|>commentary <|constrain|>json<|message|>{arguments}",
    text=True,
)


class HarmonyParser(DialectParser):
    """Messages on channels, analysis, commentary and final; calls are messages to ``functions.name``: gpt-oss.

    Source: the description of the format that comes with gpt-oss, "OpenAI harmony response format".
    """

    dialect: ClassVar = Dialect(
        tuple(
            Block(start, _HARMONY_CALL, ("<|call|>", "<|end|>", "<|return|>"))
            for start in ("<|start|>assistant to=", "<|channel|>commentary to=", "<|channel|>analysis to=")
        ),
        before="<|start|>assistant to=",
        between="<|call|><|start|>assistant to=",
        after="<|call|>",
        glue="",
        hidden=(
            "<|start|>assistant",
            *(f"<|channel|>{c}{k}<|message|>" for c in ("final", "commentary") for k in ("", " <|constrain|>json", " json")),
            "<|end|>",
            "<|call|>",
            "<|return|>",
        ),
        reasoning=(STYLES["harmony"],),
        lead="<|start|>assistant",
        before_content="<|start|>assistant<|channel|>final<|message|>",
        after_content="<|end|>",
    )


class ReActParser(DialectParser):
    """``Thought:``, then ``Action:`` and ``Action Input:``, or ``Final Answer:``, each on a line of its own; thoughts are reasoning.

    What the model makes up as an ``Observation:`` is left out. Source: ReAct (Yao et al. 2022), in the form that LangChain spread.
    """

    dialect: ClassVar = Dialect(
        (
            Block(
                "Action:",
                NamedCall(r"(?P<name>[^\n]*)\n\s*Action Input[ \t]*:", "{name}\nAction Input: {arguments}", text=True),
                ("\nObservation:",),
                line_start=True,
            ),
        ),
        before="Action: ",
        between="\nAction: ",
        hidden=("Final Answer:",),
        stop=("Observation:",),
        reasoning=(STYLES["react"],),
        before_content="Final Answer: ",
    )
