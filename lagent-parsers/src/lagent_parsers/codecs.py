"""What stands between the markers of a tool call: how it is read, and how it is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from lagent.schema import ToolCall
from lagent_parsers.jsontext import dumps, partial_value, read_values

__all__ = ["CodeCall", "Codec", "CutOffError", "JsonCalls", "NamedCall", "NoCallError", "Quote", "Read", "Tools", "arguments_of"]

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


JSON_QUOTES = (Quote('"', '"', escapes=True),)


@frozen
class Read:
    """What was read: the calls, and whether their text was well-formed."""

    calls: list[ToolCall]
    well_formed: bool = True


class Codec:
    """Reads and writes the text of tool calls.

    Attributes:
        quotes: in whose inside no marker counts.
        bare: whether the text has to look like a call to be one, as its markers alone say nothing.
    """

    quotes: tuple[Quote, ...] = ()
    bare: bool = False

    def begins(self, head: str, final: bool) -> bool | None:
        """Whether a text that begins with ``head``, without white space before it, may be a call; ``None`` if that needs more of it."""
        raise NotImplementedError

    def read(self, text: str, complete: bool, tools: Tools) -> Read:
        """The calls in ``text``.

        Args:
            complete: whether nothing can be missing, since something follows it.
            tools: what can be called, for dialects that write values without their type.

        Raises:
            NoCallError: it is no attempt at a call.
            CutOffError: it is the beginning of one.
            ValueError: it is one that cannot be read; the message is for the model.
        """
        raise NotImplementedError

    def read_partly(self, text: str, tools: Tools) -> ToolCall | None:
        """The call that ``text`` is the beginning of, as far as it goes."""
        raise NotImplementedError

    def write(self, call: ToolCall, place: int, avoid: tuple[str, ...], tools: Tools) -> str:
        """The text of a call.

        Args:
            place: the how manieth call of the answer it is, from 0.
            avoid: markers that must not occur in it.
        """
        raise NotImplementedError


# JSON ------------------------------------------------------------------------------------------------------------

_NAME_KEYS = ("name", "function", "tool_name", "function_name", "tool", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "params", "kwargs", "action_input", "tool_input")
_CERTAIN_KEYS = {"arguments", "parameters"}


@frozen
class JsonCalls(Codec):
    """Calls as JSON objects, ``{"name": …, "arguments": {…}}``: one, several, or an array of them.

    Attributes:
        arguments, name, id: the keys that are written; all usual ones are read.
        bare, quotes: see :class:`Codec`.
    """

    arguments: str = "arguments"
    name: str = "name"
    id: str = "id"
    bare: bool = False
    quotes: tuple[Quote, ...] = JSON_QUOTES

    def begins(self, head: str, final: bool) -> bool | None:
        if head[:1] in ("{", "["):
            return True
        return None if "```".startswith(head[:3]) and len(head) < 3 and not final else head.startswith("```")

    def read(self, text: str, complete: bool, tools: Tools) -> Read:
        if not self.begins(text.lstrip(), final=True):
            raise NoCallError("a tool call is written as a JSON object")
        try:
            values, well_formed = read_values(text, repair=complete)
        except ValueError as error:
            if self.bare and self.read_partly(text, tools) is None:
                raise NoCallError(str(error)) from error
            raise (ValueError if complete else CutOffError)(f"its JSON is malformed: {error}") from error
        found = [item for value in values for item in (value if isinstance(value, list) else [value])]
        if not found:
            raise NoCallError("there is no call in it")
        return Read([self._call(item) for item in found], well_formed)

    def _call(self, value: Any) -> ToolCall:
        call = call_of(value)
        if call is None or (self.bare and not _CERTAIN_KEYS & value.keys()):
            raise (NoCallError if self.bare else ValueError)(f'a tool call has the keys "{self.name}" and "{self.arguments}"')
        return call

    def read_partly(self, text: str, tools: Tools) -> ToolCall | None:
        value = partial_value(text)
        while isinstance(value, list) and value:
            value = value[-1]
        return call_of(value)

    def write(self, call: ToolCall, place: int, avoid: tuple[str, ...], tools: Tools) -> str:
        id_ = {} if call.id is None else {self.id: call.id}
        return dumps({self.name: call.name, self.arguments: call.arguments, **id_}, avoid)


def call_of(value: Any) -> ToolCall | None:
    """The call that a JSON value describes, under whichever of the usual keys; ``None`` if it describes none."""
    if not isinstance(value, dict):
        return None
    if isinstance(inner := value.get("function"), dict):  # OpenAI's form
        value = {**inner, "id": value.get("id")}
    name = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), "").strip()
    if not name:
        return None
    arguments: Any = next((value[key] for key in _ARGUMENT_KEYS if key in value), {})
    id_ = next((str(value[key]) for key in ("id", "tool_call_id") if isinstance(value.get(key), (str, int))), None)
    return ToolCall(name, arguments_of(arguments), id_)


def arguments_of(value: Any) -> dict[str, Any] | str:
    """The arguments of a call as a dict; JSON text of one is read, and what is none of both is kept as text."""
    if isinstance(value, str):
        if not value.strip():
            return {}
        try:
            values = read_values(value)[0] if value.lstrip()[0] in "{`" else []
        except ValueError:
            return value
        return values[0] if len(values) == 1 and isinstance(values[0], dict) else value
    if value is None:
        return {}
    return value if isinstance(value, dict) else dumps(value)


# A name, then arguments as JSON ----------------------------------------------------------------------------------


@frozen
class NamedCall(Codec):
    """One call: its name, and perhaps its id, then its arguments as JSON.

    Attributes:
        header: a regular expression for what stands before the arguments, with the groups ``name`` and perhaps ``id``.
        form: what is written, with ``{name}``, ``{arguments}`` and ``{id}``.
        id_form, default_id: what is written for the id, with ``{id}``, or with ``{name}`` and ``{place}`` where there is none that the
            name could be read from.
        footer: what may stand behind the arguments.
        text: whether arguments that are not JSON are plain text.
        quotes: see :class:`Codec`.
    """

    header: str
    form: str
    id_form: str = "{id}"
    default_id: str = ""
    footer: str = ""
    text: bool = False
    quotes: tuple[Quote, ...] = JSON_QUOTES

    def begins(self, head: str, final: bool) -> bool | None:
        if not head:
            return False if final else None
        return head[0].isalnum() or head[0] in "_[{<"

    def read(self, text: str, complete: bool, tools: Tools) -> Read:
        if (header := re.match(self.header, text, re.DOTALL)) is None:
            raise (NoCallError if complete else CutOffError)(f"it is written as {self.form}")
        rest = text[header.end() :].strip()
        if self.footer:
            rest = rest.removesuffix(self.footer).rstrip()
        well_formed = True
        arguments: Any = {}
        if rest and not (self.text and rest[0] not in "{[`"):
            try:
                values, well_formed = read_values(rest, repair=complete)
            except ValueError as error:
                raise (ValueError if complete else CutOffError)(f"the JSON of its arguments is malformed: {error}") from error
            arguments = values[0] if len(values) == 1 else rest
        elif rest:
            arguments = rest
        return Read([ToolCall(header["name"].strip(), arguments_of(arguments), _id_in(header))], well_formed)

    def read_partly(self, text: str, tools: Tools) -> ToolCall | None:
        if (header := re.match(self.header, text, re.DOTALL)) is None:
            return None
        value = partial_value(text[header.end() :])
        return ToolCall(header["name"].strip(), value if isinstance(value, dict) else {}, _id_in(header))

    def write(self, call: ToolCall, place: int, avoid: tuple[str, ...], tools: Tools) -> str:
        plain = self.text and isinstance(call.arguments, str)
        arguments = call.arguments if plain else dumps(call.arguments, avoid)
        default = self.default_id.format(name=call.name, place=place)
        ids = [default] if call.id is None else [self.id_form.format(id=call.id), default]
        written = [self.form.format(name=call.name, arguments=arguments, id=id_) for id_ in ids]
        return next(
            (text for text in written if (found := re.match(self.header, text)) and found["name"] == call.name), written[-1]
        )


@frozen
class CodeCall(Codec):
    """The code that one certain tool is to run; anything is code.

    Attributes:
        name, argument: the tool, and its argument that takes the code.
    """

    name: str
    argument: str

    def begins(self, head: str, final: bool) -> bool | None:
        return True

    def read(self, text: str, complete: bool, tools: Tools) -> Read:
        return Read([ToolCall(self.name, {self.argument: text.strip("\n")})])

    def read_partly(self, text: str, tools: Tools) -> ToolCall | None:
        return ToolCall(self.name, {self.argument: text.strip("\n")})

    def write(self, call: ToolCall, place: int, avoid: tuple[str, ...], tools: Tools) -> str:
        return str(call.arguments[self.argument] if isinstance(call.arguments, dict) else call.arguments)


def _id_in(header: re.Match[str]) -> str | None:
    return header.groupdict().get("id") or None
