"""Conversations with tools as plain text that a small model continues: examples first, then the conversation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import define, field

from lagent.errors import ModelConfigurationError

__all__ = ["ANSWER", "CALL", "NO_TOOL", "Step", "Tool", "Turn", "asked", "call_head", "choice", "turns_of", "written"]

Message = dict[str, Any]

CALL, ANSWER, NO_TOOL = "Call:", "Answer:", "none"

_SMALL_TALK = ("Hello!", "What is the largest ocean?", "Why do cats purr?", "Write a haiku about snow.", "Who wrote Hamlet?")
"""Questions that no tool is for: the other side of the choice."""

_TEXT_LIMIT, _LIST_LIMIT = 200, 8


@define
class Step:
    """A tool call as the model writes it, and its result once there is one."""

    call: str
    result: str | None = None


@define
class Turn:
    """A question, the tool calls that it led to, and the answer once there is one."""

    question: str
    steps: list[Step] = field(factory=list)
    answer: str | None = None


@define(frozen=True)
class Tool:
    """A tool as the prompts need it.

    Attributes:
        name, description: from the function schema.
        parameters: its JSON schema with every text and list bounded, so that a call always ends.
        examples: finished turns that use the tool.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    examples: tuple[Turn, ...] = ()

    @classmethod
    def of(cls, tool: Message) -> Tool:
        """The tool that a function schema in OpenAI's form describes, with the ``examples`` that an action put into it.

        Raises:
            ModelConfigurationError: it is not such a schema.
        """
        try:
            function = tool["function"]
            name = str(function["name"])
            examples = tuple(_example(name, example) for example in function.get("examples") or ())
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelConfigurationError(
                f"this is not a function schema in OpenAI's form, with examples of question, arguments, result and answer: {tool!r:.200}"
            ) from error
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        return cls(name, str(function.get("description") or name), _bounded(parameters), examples)


def _example(name: str, example: Message) -> Turn:
    arguments = json.dumps(example["arguments"], ensure_ascii=False)
    return Turn(
        str(example["question"]), [Step(call_head(name) + arguments + "}", str(example["result"]))], str(example["answer"])
    )


def call_head(name: str) -> str:
    """The text of a call of a tool up to its arguments."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '


def _bounded(schema: Any) -> Any:
    """A JSON schema that leaves no text, list or object open-ended."""
    if isinstance(schema, list):
        return [_bounded(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    bounded = {key: _bounded(value) for key, value in schema.items()}
    kind = schema.get("type")
    if kind == "string" and not schema.keys() & {"enum", "const", "pattern", "format"}:
        bounded.setdefault("maxLength", _TEXT_LIMIT)
    elif kind == "array":
        bounded.setdefault("maxItems", _LIST_LIMIT)
    elif kind == "object" and "properties" in schema:
        bounded.setdefault("additionalProperties", False)
    return bounded


def turns_of(messages: Iterable[Message]) -> tuple[str, list[Turn]]:
    """The system prompt and the turns of a conversation in OpenAI's form."""
    system: list[str] = []
    turns = [Turn("")]
    steps: dict[Any, Step] = {}
    for message in messages:
        text = _text(message.get("content"))
        if message["role"] == "system":
            system.append(text)
        elif message["role"] == "user":
            turns.append(Turn(" ".join(text.split())))
        elif message["role"] == "tool":
            if (step := steps.get(message.get("tool_call_id"))) is not None:
                step.result = text.strip()
        elif calls := message.get("tool_calls"):
            for call in calls:
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
                step = steps[call["id"]] = Step(f"{call_head(name)}{text}}}")
                turns[-1].steps.append(step)
        else:
            turns[-1].answer = text.strip()
    return "\n".join(system), turns[1:] if len(turns) > 1 else turns


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return str(content or "")


def written(turns: Sequence[Turn]) -> str:
    """The text of turns, up to where the model goes on in the last one if that has no answer yet."""
    blocks = []
    for turn in turns:
        lines = [f"Question: {turn.question}"]
        for step in turn.steps:
            lines.append(f"{CALL} {step.call}")
            if step.result is not None:
                lines.append(f"Result: {step.result}")
        lines.append(f"{ANSWER} {turn.answer}\n" if turn.answer is not None else "")
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def choice(tools: Sequence[Tool]) -> tuple[dict[str, list[str]], list[str]]:
    """What the choice of a tool starts from: questions by the tool that is right for them, and texts that show them.

    The texts have the tools in opposite orders, since a model favours what stands last. A tool without examples stands there with its
    description.
    """
    questions = {tool.name: [turn.question for turn in tool.examples] or [tool.description] for tool in tools}
    questions = {NO_TOOL: list(_SMALL_TALK), **questions}
    orders = dict.fromkeys([(NO_TOOL, *(tool.name for tool in order)) for order in (tools, tools[::-1])])
    shown = ["".join(f"{asked(question)} {name}\n\n" for name in order for question in questions[name]) for order in orders]
    return questions, shown


def asked(question: str) -> str:
    """The text after which the model names a tool."""
    return f"Question: {question}\nTool:"
