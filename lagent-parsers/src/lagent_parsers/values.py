"""Tool calls whose arguments are not JSON: values between tags, Python calls, and Gemma's notation."""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from typing import Any

from attrs import frozen

from lagent.schema import ToolCall
from lagent_parsers.codecs import Codec, CutOffError, NoCallError, Quote, Read, Tools, arguments_of
from lagent_parsers.jsontext import dumps, partial_value, read_values

__all__ = ["GemmaCall", "PythonCalls", "TaggedCall"]


# Values between tags ---------------------------------------------------------------------------------------------


@frozen
class TaggedCall(Codec):
    """One call: its name, then every argument as a key and a value between tags.

    Values are written without their type. The schema of the tool tells it; without one, what is valid JSON is read as JSON.

    Attributes:
        header: a regular expression for what stands before the first argument, with the group ``name``.
        head: what is written for it, with ``{name}``.
        key: a regular expression for what stands between the tags before a value, with the group ``key`` and perhaps ``string``, which is
            ``"true"`` where the value is a text and not JSON.
        open, middle, close: what is written before the key, between key and value, and after the value.
        padding: what is written round each value.
        value_open: where a value begins, if the key's own tag ends before.
    """

    header: str
    head: str
    open: str
    key: str
    middle: str
    close: str
    padding: str = ""
    value_open: str = ""

    @property
    def quotes(self) -> tuple[Quote, ...]:  # type: ignore[override]
        return (Quote(self.value_open or self.open, self.close),)

    def begins(self, head: str, final: bool) -> bool | None:
        if not head:
            return False if final else None
        return head[0].isalnum() or head[0] in "_\"'<"

    def read(self, text: str, complete: bool, tools: Tools) -> Read:
        if not complete:
            raise CutOffError("its end marker is missing")
        if (header := re.match(self.header, text)) is None:
            raise NoCallError(f"its name is written as {self.head.format(name='NAME')}")
        arguments = self._arguments(header, text, tools)
        rest = text[header.end() :].strip()
        if not arguments and rest and not rest.startswith(self.open):
            read = arguments_of(rest)
            if isinstance(read, str):
                example = f"{self.open}KEY{self.middle}VALUE{self.close}"
                raise ValueError(f"an argument is written as {example}, but there is {rest[:80]!r}")
            return Read([ToolCall(header["name"].strip(), read)], well_formed=False)
        return Read([ToolCall(header["name"].strip(), arguments)])

    def read_partly(self, text: str, tools: Tools) -> ToolCall | None:
        header = re.match(self.header, text)
        return header and ToolCall(header["name"].strip(), self._arguments(header, text, tools))

    def _arguments(self, header: re.Match[str], text: str, tools: Tools) -> dict[str, Any]:
        schemas = _properties(header["name"].strip(), tools)
        arguments: dict[str, Any] = {}
        # A value without its end tag ends where the next one begins.
        value = f"{self.key}(?P<value>.*?)(?:{re.escape(self.close)}|(?={re.escape(self.open)})|\\Z)"
        for found in re.compile(value, re.DOTALL).finditer(text, header.end()):
            key, written = found["key"].strip(), found["value"]
            if self.padding:
                written = written.removeprefix(self.padding).removesuffix(self.padding)
            flag = found.groupdict().get("string")
            types = {"true": {"string"}, "false": set[str]()}.get(flag or "", _types(schemas.get(key)))
            arguments[key] = read_typed(written, types)
        return arguments

    def write(self, call: ToolCall, place: int, avoid: tuple[str, ...], tools: Tools) -> str:
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        schemas = _properties(call.name, tools)
        written = "".join(self._argument(key, value, _types(schemas.get(key)), avoid) for key, value in arguments.items())
        return f"{self.head.format(name=call.name)}{written}"

    def _argument(self, key: str, value: Any, types: set[str], avoid: tuple[str, ...]) -> str:
        middle = self.middle
        if "{string}" in middle:
            types = {"string"} if isinstance(value, str) else set()
            middle = middle.format(string=str(isinstance(value, str)).lower())
        plain = isinstance(value, str) and read_typed(value, types) == value
        # Tags cannot be escaped in a plain text: a text that holds some is written as JSON.
        if not plain or any(marker in value for marker in (self.open, self.close, *avoid)):
            value = dumps(value, (self.open, self.close, *avoid))
        return f"{self.open}{key}{middle}{self.padding}{value}{self.padding}{self.close}\n"


def _properties(name: str, tools: Tools) -> dict[str, Any]:
    for tool in tools:
        function = tool.get("function", tool)
        if function.get("name") == name:
            properties: dict[str, Any] = (function.get("parameters") or {}).get("properties") or {}
            return properties
    return {}


def _types(schema: Any) -> set[str]:
    """The JSON types that a schema allows; none if it does not say."""
    if not isinstance(schema, dict):
        return set()
    types = schema.get("type") or []
    found = {types} if isinstance(types, str) else set(types)
    return found.union(*map(_types, schema.get("anyOf") or schema.get("oneOf") or []))


_PYTHON = {"True": True, "False": False, "None": None}
_JSON_TYPES: dict[type, set[str]] = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    str: {"string"},
    list: {"array"},
    dict: {"object"},
    type(None): {"null"},
}


def read_typed(text: str, types: set[str]) -> Any:
    """The value that is written as ``text``, of one of the JSON types, or of any if none is given."""
    if types == {"string"}:
        return text
    if text.strip() in _PYTHON and not ("string" in types and text.strip() != "None"):
        return _PYTHON[text.strip()]
    try:
        values, _ = read_values(text, repair=bool(types & {"array", "object"}) and text.lstrip()[:1] in ("[", "{"))
    except ValueError:
        return text
    return values[0] if len(values) == 1 and (not types or _JSON_TYPES[type(values[0])] & types) else text


# Python ----------------------------------------------------------------------------------------------------------


@frozen
class PythonCalls(Codec):
    """Calls as Python writes them, ``name(key=value, …)``: one, several on lines of their own, or a list of them."""

    bare: bool = False
    quotes: tuple[Quote, ...] = (Quote('"', '"', escapes=True), Quote("'", "'", escapes=True))

    def begins(self, head: str, final: bool) -> bool | None:
        if not head:
            return False if final else None
        return head[0].isidentifier() or head[0] == "["

    def read(self, text: str, complete: bool, tools: Tools) -> Read:
        wrong = NoCallError if self.bare else ValueError
        if not self.begins(text.lstrip(), final=True):
            raise NoCallError("a tool call is written as in Python")
        try:
            calls = [_python_call(node, tools) for node in _nodes(text)]
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise (wrong if complete else CutOffError)(
                f"it is not read as Python calls with literal arguments: {error}"
            ) from error
        if not calls:
            raise NoCallError("there is no call in it")
        return Read(calls)

    def read_partly(self, text: str, tools: Tools) -> ToolCall | None:
        names = re.findall(r"\b[^\W\d][\w.]*(?=\()", text)
        return ToolCall(names[-1]) if names else None

    def write(self, call: ToolCall, place: int, avoid: tuple[str, ...], tools: Tools) -> str:
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        named = {key: value for key, value in arguments.items() if key.isidentifier() and not keyword.iskeyword(key)}
        others = {key: value for key, value in arguments.items() if key not in named}
        written = [f"{key}={value!r}" for key, value in named.items()] + ([f"**{others!r}"] if others else [])
        text = f"{call.name}({', '.join(written)})"
        for marker in avoid:
            text = text.replace(marker, f"\\u{ord(marker[0]):04x}{marker[1:]}")
        return text


def _nodes(text: str) -> list[ast.expr]:
    with warnings.catch_warnings():  # of escapes that Python does not know
        warnings.simplefilter("ignore")
        tree = ast.parse(text.strip())
    nodes: list[ast.expr] = []
    for statement in tree.body:
        if not isinstance(statement, ast.Expr):
            raise ValueError(f"{type(statement).__name__} is no call")
        value = statement.value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print":
            nodes += value.args
        else:
            nodes += value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]
    return nodes


def _python_call(node: ast.expr, tools: Tools) -> ToolCall:
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        raise ValueError(f"{ast.unparse(node)[:80]!r} is no call")
    name = ast.unparse(node.func)
    names = list(_properties(name, tools))
    if len(node.args) > len(names):
        raise ValueError(f"the arguments of {name!r} have to be written as name=value")
    arguments = {key: _literal(value) for key, value in zip(names, node.args, strict=False)}
    for argument in node.keywords:
        value = _literal(argument.value)
        arguments |= value if argument.arg is None else {argument.arg: value}
    return ToolCall(name, arguments)


_CONSTANTS = {"true": True, "false": False, "null": None, "inf": float("inf"), "nan": None}


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, bool, type(None))):
        return node.value
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {str(_literal(k)): _literal(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _literal(node.operand)
        if isinstance(value, (int, float)):
            return -value if isinstance(node.op, ast.USub) else value
    raise ValueError(f"{ast.unparse(node)[:80]!r} is no literal")


# Gemma -----------------------------------------------------------------------------------------------------------

_BARE_KEY = re.compile(r'(?<=[{,])(\s*)([^\s:,{}\[\]"]+)\s*:')
_GEMMA_HEADER = re.compile(r"\s*call:\s*(?P<name>[^\s{]+)\s*(?=\{)")


@frozen
class GemmaCall(Codec):
    """One call in Gemma's notation, ``call:name{key:value, …}``: JSON without quotes round keys, texts between marks of their own.

    Attributes:
        mark: what stands on both sides of a text.
    """

    mark: str

    @property
    def quotes(self) -> tuple[Quote, ...]:  # type: ignore[override]
        return (Quote(self.mark, self.mark),)

    def begins(self, head: str, final: bool) -> bool | None:
        return None if "call:".startswith(head[:5]) and len(head) < 5 and not final else head.startswith("call:")

    def read(self, text: str, complete: bool, tools: Tools) -> Read:
        if (header := _GEMMA_HEADER.match(text)) is None:
            raise (NoCallError if complete else CutOffError)("it is written as call:NAME{KEY:VALUE}")
        try:
            values, well_formed = read_values(self._json(text[header.end() :]), repair=complete)
        except ValueError as error:
            raise (ValueError if complete else CutOffError)(f"its arguments are malformed: {error}") from error
        return Read([ToolCall(header["name"], arguments_of(values[0]))], well_formed)

    def read_partly(self, text: str, tools: Tools) -> ToolCall | None:
        if (header := _GEMMA_HEADER.match(text)) is None:
            return None
        value = partial_value(self._json(text[header.end() :]))
        return ToolCall(header["name"], value if isinstance(value, dict) else {})

    def _json(self, text: str) -> str:
        parts = text.split(self.mark)
        parts[::2] = [_BARE_KEY.sub(r'\1"\2":', part) for part in parts[::2]]
        parts[1::2] = map(dumps, parts[1::2])
        return "".join(parts)

    def write(self, call: ToolCall, place: int, avoid: tuple[str, ...], tools: Tools) -> str:
        return f"call:{call.name}{self._value(call.arguments if isinstance(call.arguments, dict) else {})}"

    def _value(self, value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ",".join(f"{self._key(key)}:{self._value(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._value, value)) + "]"
        return f"{self.mark}{value}{self.mark}" if isinstance(value, str) else dumps(value)

    def _key(self, key: str) -> str:
        return key if key.isidentifier() else f"{self.mark}{key}{self.mark}"
