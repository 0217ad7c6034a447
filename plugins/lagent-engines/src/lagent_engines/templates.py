"""Chat templates as engines' models have them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from lagent.errors import ModelConfigurationError
from lagent.llms import LMTemplateParser, is_image

__all__ = ["MARK", "ChatTemplate", "MetaTemplate", "Template"]

Message = dict[str, Any]

MARK = "d41d8cd9"
"""A word that no template writes by itself."""
_CALL = {"id": "call00000", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
_TOOL: Message = {
    "type": "function",
    "function": {"name": MARK, "description": "Looks up.", "parameters": {"type": "object", "properties": {}}},
}


class Template(Protocol):
    """Renders conversations."""

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        *,
        generate: bool,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """The text for ``messages``, up to where the model begins to write if ``generate``.

        Args:
            options: further variables of the template, such as ``enable_thinking``.

        Raises:
            ModelConfigurationError: the template refuses the conversation.
        """


class ChatTemplate:
    """The chat template of a Hugging Face tokenizer, or another one rendered by it.

    Args:
        tokenizer: has ``apply_chat_template``.
        source: the Jinja template to use instead of the tokenizer's own.
        options: variables for every rendering.
    """

    def __init__(self, tokenizer: Any, source: str | None = None, options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        own = source if source is not None else tokenizer.chat_template
        # A tokenizer may have several templates by name, of which the one for tools takes plain conversations as well.
        self.source: str | None = (own.get("tool_use") or own.get("default")) if isinstance(own, Mapping) else own
        self._options = dict(options or {})
        self._knows: dict[str, bool] = {}

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        *,
        generate: bool,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        if self.source is None:
            raise ModelConfigurationError(
                "the model has no chat template: pass chat_template= with the one it was trained with, or call generate with plain text"
            )
        try:
            text = self._tokenizer.apply_chat_template(
                [_for_template(message) for message in messages],
                tools=None if not tools else list(tools),
                chat_template=self.source,
                add_generation_prompt=generate,
                tokenize=False,
                **{**self._options, **(options or {})},
            )
        except Exception as error:  # a template is a program, and may fail in any way
            raise ModelConfigurationError(f"the chat template of the model refuses the conversation: {error}") from error
        return str(text)

    def knows(self, role: str) -> bool:
        """Whether messages of ``role`` come into the text; templates refuse roles, or leave them out without a word."""
        if role not in self._knows:
            marked: Message = {"role": role, "content": MARK}
            question: Message = {"role": "user", "content": "?"}
            if role == "tool":
                asked = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
                probes = [[question, asked, {**marked, "tool_call_id": _CALL["id"], "name": "look_up"}]]
            else:
                probes = [[marked, question], [question, marked]]  # a system message comes first, an assistant's later
            self._knows[role] = any(MARK in self._attempt(probe) for probe in probes)
        return self._knows[role]

    def knows_tools(self) -> bool:
        """Whether tools come into the text."""
        return MARK in self._attempt([{"role": "user", "content": "?"}], [_TOOL])

    def knows_images(self) -> bool:
        """Whether images get a place in the text."""
        text: Message = {"type": "text", "text": MARK}
        with_image, without = (
            self._attempt([{"role": "user", "content": parts}]) for parts in ([{"type": "image"}, text], [text])
        )
        return MARK in with_image and with_image != without

    def _attempt(self, messages: list[Message], tools: list[Message] | None = None) -> str:
        try:
            return self.render(messages, tools, generate=True)
        except ModelConfigurationError:
            return ""


class MetaTemplate:
    """A ``meta_template`` as a template."""

    def __init__(self, parser: LMTemplateParser) -> None:
        self._parser = parser

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        *,
        generate: bool,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        return self._parser(list(messages), generate=generate)


def _for_template(message: Message) -> Message:
    """``message`` in the form that templates expect: content as text, arguments of tool calls as objects."""
    content = message.get("content")
    if isinstance(content, list):
        # They leave a place for an image, in which the engine puts what the model sees.
        parts = [{"type": "image"} if is_image(part) else part for part in content]
        plain = all(part.get("type") == "text" for part in parts)
        message = {**message, "content": "\n".join(part["text"] for part in parts) if plain else parts}
    if message.get("tool_calls"):
        message = {**message, "tool_calls": [_call_for_template(call) for call in message["tool_calls"]]}
    return message


def _call_for_template(call: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = call["function"].get("arguments")
    if not isinstance(arguments, str):
        return call
    try:
        read = json.loads(arguments or "{}")
    except ValueError:
        return call
    return {**call, "function": {**call["function"], "arguments": read}} if isinstance(read, dict) else call
