"""What stands between the markers of a tool call: how it is read, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from attrs import frozen

from lagent.schema import ToolCall
from lagent_parsers.jsontext import dumps, partial_value, read_values

__all__ = ["Codec", "CutOffError", "JsonCalls", "NoCallError", "Quote", "Read", "Tools"]

Tools = Sequence[Mapping[str, Any]]
"""Function schemas in OpenAI's form."""


class NoCallError(ValueError):
    """The text is no attempt at a tool call."""


class CutOffError(ValueError):
    """The text ends in the middle of a tool call."""


@frozen
class Quote:
    """A region in whose inside no marker counts.

    Attributes:
        open, close: what it stands between.
        escapes: whether a backslash takes the meaning from the character behind it.
    """

    open: str
    close: str
    escapes: bool = False


@frozen
class Read:
    """What was read: the calls, and whether their text was well-formed."""

    calls: list[ToolCall]
    well_formed: bool = True


class Codec:
    """Reads and writes the text of tool calls."""

    quotes: ClassVar[tuple[Quote, ...]] = ()

    def begins(self, head: str, final: bool) -> bool | None:
        """Whether a text that begins with ``head``, which has no leading white space, may be a call; ``None`` if that is not certain yet."""
        return bool(head) or (False if final else None)

    def read(self, text: str, closed: bool, tools: Tools) -> Read:
        """The calls in ``text``.

        Args:
            closed: whether the end marker was there, so that nothing can be missing.
            tools: what can be called, for dialects that write values without their type.

        Raises:
            NoCallError: it is no attempt at a call.
            CutOffError: it is the beginning of one.
            ValueError: it is one that cannot be read; the message is for the model.
        """
        raise NotImplementedError

    def read_partly(self, text: str) -> ToolCall | None:
        """The call that ``text`` is the beginning of, as far as it goes."""
        return None

    def write(self, call: ToolCall, avoid: tuple[str, ...], tools: Tools) -> str:
        """The text of a call, in which none of the markers ``avoid`` occurs where it would count."""
        raise NotImplementedError


_JSON_QUOTES = (Quote('"', '"', escapes=True),)
_NAME_KEYS = ("name", "function", "tool_name", "function_name", "tool", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "params", "kwargs", "action_input", "tool_input")
_CERTAIN_KEYS = {"arguments", "parameters"}


@frozen
class JsonCalls(Codec):
    """Calls as JSON objects, ``{"name": …, "arguments": {…}}``: one, several, or an array of them.

    Attributes:
        arguments: the key that is written; all usual ones are read.
        id_key: the key of the call's id.
        bare: whether nothing but the JSON itself tells that it is a call, so that it must look like one.
    """

    quotes: ClassVar = _JSON_QUOTES

    arguments: str = "arguments"
    name: str = "name"
    id_key: str = "id"
    bare: bool = False

    def begins(self, head: str, final: bool) -> bool | None:
        if head[:1] in ("{", "["):
            return True
        return None if not final and "```".startswith(head[:3]) and len(head) < 3 else head.startswith("```")

    def read(self, text: str, closed: bool, tools: Tools) -> Read:
        if not self.begins(text.lstrip(), True):
            raise NoCallError("a tool call is written as a JSON object")
        try:
            values, well_formed = read_values(text, repair=closed)
        except ValueError as error:
            if self.bare and self.read_partly(text) is None:
                raise NoCallError(str(error)) from error
            raise (ValueError if closed else CutOffError)(f"its JSON is malformed: {error}") from error
        found = [item for value in values for item in (value if isinstance(value, list) else [value])]
        calls = [self._call(item) for item in found]
        if not calls:
            raise NoCallError("there is no call in it")
        return Read(calls, well_formed)

    def _call(self, value: Any) -> ToolCall:
        call = call_of(value)
        if call is None or (self.bare and not _CERTAIN_KEYS & value.keys()):
            raise (NoCallError if self.bare else ValueError)(f'a tool call has the keys "{self.name}" and "{self.arguments}"')
        return call

    def read_partly(self, text: str) -> ToolCall | None:
        value = partial_value(text)
        while isinstance(value, list) and value:
            value = value[-1]
        return call_of(value)

    def write(self, call: ToolCall, avoid: tuple[str, ...], tools: Tools) -> str:
        id_ = {} if call.id is None else {self.id_key: call.id}
        return dumps({self.name: call.name, self.arguments: call.arguments, **id_}, avoid)


def call_of(value: Any) -> ToolCall | None:
    """The call that a JSON value describes, under whichever of the usual keys; ``None`` if it describes none."""
    if not isinstance(value, dict):
        return None
    if isinstance(inner := value.get("function"), dict):  # OpenAI's form
        value = {**inner, "id": value.get("id")}
    name = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    if not name:
        return None
    arguments: Any = next((value[key] for key in _ARGUMENT_KEYS if key in value and value[key] is not name), {})
    id_ = next((str(value[key]) for key in ("id", "tool_call_id") if isinstance(value.get(key), (str, int))), None)
    return ToolCall(name.strip(), arguments_of(arguments), id_)


def arguments_of(value: Any) -> dict[str, Any] | str:
    """The arguments of a call as a dict; JSON text of one is read, and what is none of both is kept as text."""
    if value is None:
        return {}
    if isinstance(value, str):
        if not value.strip():
            return {}
        try:
            values = read_values(value)[0] if value.lstrip()[0] in "{`" else []
        except ValueError:
            return value
        return values[0] if len(values) == 1 and isinstance(values[0], dict) else value
    return value if isinstance(value, dict) else dumps(value)
