"""Which parser reads what a model writes, told by its chat template."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field

from lagent.errors import ConfigurationError
from lagent.registry import create
from lagent.schema import ToolCall
from lagent_parsers.reasoning import STYLES
from lagent_parsers.templates import Template, template_in, template_of

__all__ = ["AutoParser", "TemplateCheck", "check_model_template", "detect"]

_SIGNS: tuple[tuple[str, str], ...] = (
    ("harmony", r"<\|channel\|>.*<\|message\|>"),
    ("kimi-k2", r"<\|tool_call_argument_begin\|>"),
    ("deepseek-v3.2", r"｜DSML｜"),
    ("deepseek-v3", r"<｜tool▁call▁begin｜>.*<｜tool▁sep｜>.*```json"),
    ("deepseek-v3.1", r"<｜tool▁call▁begin｜>.*<｜tool▁sep｜>"),
    ("step3", r"<steptml:invoke"),
    ("minimax-m2", r"<minimax:tool_call>"),
    ("seed-oss", r"<seed:tool_call>"),
    ("glm-4.5", r"<arg_key>"),
    ("qwen3-coder", r"<tool_call>.*<function="),
    ("longcat", r"<longcat_tool_call>"),
    ("functiongemma", r"<start_function_call>"),
    ("gemma-4", r"<\|tool_call>"),
    ("internlm", r"<\|action_start\|>"),
    ("cohere", r"<\|START_ACTION\|>"),
    ("lfm2", r"<\|tool_call_start\|>"),
    ("olmo3", r"<function_calls>"),
    ("nemotron", r"<TOOLCALL>"),
    ("mistral", r"\[TOOL_CALLS\]"),
    ("granite", r"<\|tool_call\|>"),
    ("phi-4", r"functools\["),
    ("functionary", r"<function=[^>]*>\{"),
    ("functionary-v3.2", r">>>all"),
    ("hermes", r"<tool_call>[^\]]{0,80}\{[\s\\]*\"name[\\]*\""),
    ("hunyuan", r"<tool_calls>"),
    ("llama3-json", r"python_tag.*\"parameters|\"parameters.*python_tag|\{\"name\": [^}]{0,60}\"parameters\": "),
    ("pythonic", r"<\|python_start\|>|\[func_name1?\("),
)
"""What only the templates of a dialect hold; the first match counts."""


def detect(chat_template: Any, tokenizer: Any = None) -> dict[str, Any]:
    """The parser for a model's answers, as ``output_format`` takes it: ``{"type": "hermes", "reasoning": "think"}``.

    Where jinja2 is installed (``pip install lagent-parsers[templates]``), the template is rendered to see whether it begins the reasoning
    itself; otherwise that is judged by its text.

    Args:
        chat_template: the Jinja template, or several by name as some tokenizers have them; ``None`` for the tokenizer's.
        tokenizer: what has the attribute ``chat_template``.

    Raises:
        ConfigurationError: there is no template, or it shows neither a known dialect nor reasoning.
    """
    template = template_of(chat_template, tokenizer)
    found: dict[str, Any] = {}
    dialect = next((name for name, sign in _SIGNS if re.search(sign, template.source, re.DOTALL)), None)
    style = next((name for name, style in STYLES.items() if style.open.strip() in template.source and name != "harmony"), None)
    if dialect is None and style is None:
        raise ConfigurationError(
            "the chat template shows no tool-call dialect and no reasoning that are known: choose the output_format yourself, one of "
            f"{', '.join(name for name, _ in _SIGNS)}"
        )
    found["type"] = dialect or "reasoning"
    if style is not None:
        found["reasoning"] = style
        if template.begins_with(STYLES[style].open, STYLES[style].close):
            found["reasoning_started"] = True
    return found


class AutoParser:
    """Makes the parser that a chat template calls for; see :func:`detect`.

    Args:
        chat_template, tokenizer: see :func:`detect`.
        arguments: arguments of the parser that override what was detected.
    """

    def __new__(cls, chat_template: Any = None, tokenizer: Any = None, **arguments: Any) -> Any:
        return create("parsers", {**detect(chat_template, tokenizer), **arguments})


# The check of a template -----------------------------------------------------------------------------------------

_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "A city."},
                    "days": {"type": "integer", "description": "Days."},
                },
                "required": ["city"],
            },
        },
    }
]
_CALLS = [ToolCall("get_weather", {"city": "Zürich", "days": 2}), ToolCall("get_weather", {"city": "京都", "days": 3})]
_QUESTION = {"role": "user", "content": "How is the weather?"}


@define
class TemplateCheck:
    """How well a chat template and the parser chosen for it go together.

    Attributes:
        parser: what :func:`detect` chose, or the user.
        problems: what is wrong, in words; empty if the parser reads what the template writes.
        written: what the template wrote for the probe.
    """

    parser: Mapping[str, Any]
    problems: list[str] = field(factory=list)
    written: str = ""


def check_model_template(model: Any, parser: Mapping[str, Any] | None = None) -> TemplateCheck:
    """Render a conversation with tool calls through a model's chat template and read it back with the parser for it.

    Args:
        model: the model's folder, or a file with the template.
        parser: the parser to check; the detected one if not given.

    Raises:
        ConfigurationError: there is no template, or it shows nothing known.
        ImportError: jinja2 is not installed.
    """
    return check_template(template_in(model), parser)


def check_template(template: Template, parser: Mapping[str, Any] | None = None) -> TemplateCheck:
    """As :func:`check_model_template`, for a template."""
    check = TemplateCheck(parser or detect(template.source))
    reader = create("parsers", {**check.parser, **({} if check.parser["type"] == "reasoning" else {"tools": _TOOLS})})
    if check.parser["type"] == "reasoning":
        check.problems.append("the template shows no tool-call dialect that is known: its tool calls cannot be read")
        return check
    problems: list[tuple[str, str]] = []
    for messages, calls in _probes():
        try:
            written = _answer(template, messages)
        except ConfigurationError as error:
            problems.append((str(error), ""))
            continue
        read = reader.parse_response(written)
        got = [ToolCall(call.name, call.arguments) for call in read.tool_calls]
        if got == calls:
            check.written = written
            return check
        problems.append(
            (
                f"of the calls {calls} it wrote, {check.parser['type']!r} read {got}{f': {read.error}' if read.error else ''}",
                written,
            )
        )
    # The most telling problem is one with a text that was written but not read.
    problem, check.written = next((each for each in problems if each[1]), problems[0])
    check.problems.append(problem)
    return check


def _probes() -> Iterator[tuple[list[dict[str, Any]], list[ToolCall]]]:
    """Conversations that end in tool calls. Templates differ in what they accept: several calls, arguments as text, the form of ids."""
    ids = ("call0000{}", "functions.get_weather:{}")
    for calls, as_text, id_form, content in itertools.product((_CALLS, _CALLS[:1]), (False, True), ids, ("", None)):
        said = []
        for place, call in enumerate(calls):
            arguments = json.dumps(call.arguments, ensure_ascii=False) if as_text else call.arguments
            function = {"name": call.name, "arguments": arguments}
            said.append({"id": id_form.format(place), "type": "function", "function": function})
        yield [_QUESTION, {"role": "assistant", "content": content, "tool_calls": said}], calls


def _answer(template: Template, messages: list[dict[str, Any]]) -> str:
    """What the template writes for the last message, without its heading."""
    before = template.render(messages[:-1], _TOOLS)
    prompt = template.render(messages[:-1], _TOOLS, prompt=True)
    whole = template.render(messages, _TOOLS)
    answer = whole[_common(before, whole) :]
    heading = prompt[_common(before, whole) :]
    common = _common(heading, answer)
    if common < len(heading):  # the prompt begins reasoning, say: what the two have in common may be a part of a marker
        common = max(answer.rfind(end, 0, common) for end in (">", "\n")) + 1
    return answer[common:]


def _common(first: str, second: str) -> int:
    """How long the common beginning of two texts is."""
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))
