"""lagent's own tool parsers: a thought, then one action between two markers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lagent.errors import ConfigurationError
from lagent.prompts.parsers import ParserStream, StrParser, ToolStatusCode
from lagent.registry import create
from lagent_parsers.markers import Markers

__all__ = ["InterpreterParser", "MixedToolParser", "PluginParser", "ToolParser", "ToolStatusCode"]


def default_plugin_validate(plugin: str) -> Any:
    """The call of a plugin, read as a JSON object.

    Raises:
        ValueError: it is none.
    """
    plugin = plugin.strip()
    if not (plugin.startswith("{") and plugin.endswith("}")):
        raise ValueError(f"the call has to be one JSON object, from {{ to }}, but is {plugin[:80]!r}")
    return json.loads(plugin)


class ToolParser(StrParser):
    """Reads a thought and, after ``begin``, an action up to ``end`` or the end of the text.

    The result is a dict of ``tool_type`` (``None`` without an action), ``thought``, ``action`` (what ``validate`` made of it, or the text),
    ``status`` (a :class:`ToolStatusCode`) and, where the action is refused, ``error``. The text after ``end`` is left out.

    Args:
        tool_type: what the result is called.
        template: the instruction for the model, which may name ``{begin}``, ``{end}`` and the fields of ``kwargs``.
        begin, end: the markers; an empty ``end`` takes everything.
        validate: reads the text of an action and raises if it cannot.

    Raises:
        ConfigurationError: ``begin`` is empty, or ``validate`` is not callable.
    """

    def __init__(
        self,
        tool_type: str,
        template: str = "",
        begin: str = "<tool>\n",
        end: str = "</tool>\n",
        validate: Callable[[str], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(template, begin=begin, end=end, **kwargs)
        if not begin:
            raise ConfigurationError(f"the begin marker of the tool parser {tool_type!r} is empty")
        if validate is not None and not callable(validate):
            raise ConfigurationError(f"validate of the tool parser {tool_type!r} has to be a function, not {validate!r:.80}")
        self.tool_type = tool_type
        self.validate = validate

    def stream(self) -> ToolStream:
        return ToolStream([self])

    def parse_response(self, data: str) -> dict[str, Any]:
        return _whole(self.stream(), data)

    def format_response(self, parsed: dict[str, Any]) -> str:
        """The text that is read as ``parsed``.

        Raises:
            ValueError: the action is for another tool.
        """
        if parsed["action"] is None:
            return str(parsed["thought"])
        if parsed["tool_type"] != self.tool_type:
            raise ValueError(f"an action of {parsed['tool_type']!r} was given to the parser of {self.tool_type!r}")
        action = parsed["action"]
        text = json.dumps(action, ensure_ascii=False) if isinstance(action, (dict, list)) else str(action)
        return f"{parsed['thought']}{self.format_field['begin']}{text}{self.format_field['end']}"


class InterpreterParser(ToolParser):
    """Reads code for the interpreter, as InternLM2 marks it."""

    def __init__(
        self,
        tool_type: str = "interpreter",
        template: str = "",
        begin: str = "<|action_start|><|interpreter|>\n",
        end: str = "<|action_end|>\n",
        validate: Callable[[str], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(tool_type, template, begin, end, validate, **kwargs)


class PluginParser(ToolParser):
    """Reads the call of a plugin, a JSON object, as InternLM2 marks it."""

    def __init__(
        self,
        tool_type: str = "plugin",
        template: str = "",
        begin: str = "<|action_start|><|plugin|>\n",
        end: str = "<|action_end|>\n",
        validate: Callable[[str], Any] | None = default_plugin_validate,
        **kwargs: Any,
    ) -> None:
        super().__init__(tool_type, template, begin, end, validate, **kwargs)


class MixedToolParser(StrParser):
    """Reads an action of any of several tool parsers: the one that comes first in the text.

    Args:
        tool_type: the name of the general instruction among the messages of :meth:`format_instruction`.
        template: the general instruction.
        parsers: tool parsers, or tables that make some.
    """

    def __init__(
        self, tool_type: str | None = None, template: str = "", parsers: Iterable[Any] | None = None, **format_field: Any
    ) -> None:
        super().__init__(template, **format_field)
        self.tool_type = tool_type
        made = [create("parsers", parser) for parser in parsers or ()]
        self.parsers: dict[str, ToolParser] = {parser.tool_type: parser for parser in made}

    def format_instruction(self) -> list[dict[str, str]]:
        """A system message for the general instruction and one for each parser, without those that are empty."""
        general = {"role": "system", "content": super().format_instruction()}
        messages = [general | ({"name": self.tool_type} if self.tool_type else {})]
        messages += [{"role": "system", "content": p.format_instruction(), "name": name} for name, p in self.parsers.items()]
        return [message for message in messages if message["content"].strip()]

    def stream(self) -> ToolStream:
        return ToolStream(list(self.parsers.values()))

    def parse_response(self, data: str) -> dict[str, Any]:
        return _whole(self.stream(), data)

    def format_response(self, parsed: dict[str, Any]) -> str:
        """The text that is read as ``parsed``.

        Raises:
            ValueError: there is no parser for its tool.
        """
        if parsed["action"] is None:
            return str(parsed["thought"])
        if parsed["tool_type"] not in self.parsers:
            raise ValueError(f"there is no parser for {parsed['tool_type']!r}, only for {', '.join(self.parsers) or 'none'}")
        return self.parsers[parsed["tool_type"]].format_response(parsed)


class ToolStream(ParserStream):
    """Reads one answer for tool parsers, of which the one whose begin marker comes first takes the action."""

    def __init__(self, parsers: Sequence[ToolParser]) -> None:
        self._parsers = {parser.format_field["begin"]: parser for parser in parsers}
        self._markers: Markers | None = Markers(self._parsers)
        self._found: ToolParser | None = None
        self._held = ""
        self._text: list[str] = []  # of the thought, then of the action
        self._thought = ""

    def feed(self, piece: str) -> None:
        self._read(piece, final=False)

    def partial(self) -> dict[str, Any]:
        """The thought and the action so far; an action that goes on is the plain text."""
        text = "".join(self._text)
        self._text = [text]
        if self._found is None:
            return _result(None, text, None, ToolStatusCode.NO_TOOL)
        return _result(self._found.tool_type, self._thought, text, ToolStatusCode.VALID_TOOL)

    def finish(self) -> dict[str, Any]:
        self._read("", final=True)
        result = self.partial()
        if self._found is None:
            return result
        if self._markers is not None:  # models often leave out the line break after the end marker, and stop
            result["action"] = result["action"].removesuffix(self._found.format_field["end"].rstrip())
        if self._found.validate is None:
            return result
        try:
            return result | {"action": self._found.validate(result["action"])}
        except Exception as error:  # a user's function, or JSON nested too deeply
            return result | {"status": ToolStatusCode.PARSING_ERROR, "error": str(error) or repr(error)}

    def _read(self, piece: str, final: bool) -> None:
        text, at = self._held + piece, 0
        while self._markers is not None:
            found, certain = self._markers.find(text, at, final)
            self._text.append(text[at:certain])
            if found is None:
                self._held = text[certain:]
                break
            at = found.end()
            if self._found is None:
                self._found = self._parsers[found.group()]
                self._thought, self._text = "".join(self._text), []
                self._markers = Markers([self._found.format_field["end"]])
            else:
                self._markers, self._held = None, ""


def _result(tool_type: str | None, thought: str, action: Any, status: ToolStatusCode) -> dict[str, Any]:
    return {"tool_type": tool_type, "thought": thought, "action": action, "status": status}


def _whole(stream: ToolStream, data: str) -> dict[str, Any]:
    stream.feed(data)
    return stream.finish()
