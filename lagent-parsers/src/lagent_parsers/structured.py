"""Structured output: JSON or tagged fields, read as values of a user's types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import define

from lagent.actions.arguments import fit
from lagent.errors import ConfigurationError
from lagent.prompts.parsers import ParserStream, StrParser
from lagent.schema import ParsedResponse, ParseStatus, to_data
from lagent_parsers.dialect import DialectParser
from lagent_parsers.jsontext import dumps, find_values, partial_value
from lagent_parsers.prose import Reading
from lagent_parsers.types import Form, form_of, one_schema, resolved, skeleton, type_in_words

__all__ = ["CustomFormatParser", "JSONParser", "Structured"]


@define
class Structured(ParsedResponse):
    """What was read: ``value`` is an object of the user's type. Its fields can be had as items too, as of the dict that lagent gave."""

    def __getitem__(self, key: str) -> Any:
        return self._fields()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._fields()

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields())

    def keys(self) -> Iterable[str]:
        return self._fields().keys()

    def get(self, key: str, default: Any = None) -> Any:
        return self._fields().get(key, default)

    def _fields(self) -> Mapping[str, Any]:
        data = to_data(self.value)
        return data if isinstance(data, dict) else {}


class _StructuredParser(StrParser):
    """What the two parsers have in common."""

    _DEFAULT_TEMPLATE = ""
    _OR = "\n\nor in this form:\n"

    def __init__(self, template: str = "", *, reasoning: Any = "none", reasoning_started: bool = False, **formats: Any) -> None:
        self.forms = {name: form_of(name, hint) for name, hint in formats.items() if not isinstance(hint, str)}
        if not self.forms:
            raise ConfigurationError(f"{type(self).__name__} needs a format: pass a type or a JSON schema, such as answer=MyType")
        super().__init__(template or self._DEFAULT_TEMPLATE + self._OR.join(f"{{{name}}}" for name in self.forms), **formats)
        self.text = DialectParser(reasoning=reasoning, reasoning_started=reasoning_started)

    def format_instruction(self) -> str:
        shown = {name: self._show(form.schema) for name, form in self.forms.items()}
        return self.template.format(**{**self.format_field, **shown})

    def format_to_string(self, format_model: Any) -> str:
        return format_model if isinstance(format_model, str) else self._show(form_of("the format", format_model).schema)

    def stream(self) -> StructuredStream:
        return StructuredStream(self)

    def parse_response(self, data: str) -> Structured:
        stream = self.stream()
        stream.feed(data)
        return stream.finish()

    def format_response(self, parsed: Any) -> str:
        """The text that is read as ``parsed``, which may be a result of :meth:`parse_response`, or a mere value."""
        known = isinstance(parsed, ParsedResponse)
        content = self._write(to_data(parsed.value if known else parsed))
        return self.text.format_response(ParsedResponse(content, parsed.reasoning if known else None))

    def read(self, text: str) -> tuple[Any, ParseStatus, str | None]:
        """The value that the complete ``text`` holds, how well, and what is wrong with it."""
        raise NotImplementedError

    def read_partly(self, text: str) -> Any:
        """What the beginning of an answer says so far."""
        raise NotImplementedError

    def _show(self, schema: Mapping[str, Any]) -> str:
        raise NotImplementedError

    def _write(self, data: Any) -> str:
        raise NotImplementedError

    def _typed(self, value: Any, loose: bool = False) -> Any:
        """``value`` as an object of the first format that it fits.

        Args:
            loose: whether the values are texts, to be read as the schema says.

        Raises:
            ValueError: it fits none.
        """
        problems = []
        for form in self.forms.values():
            try:
                return form.read(fit(value, form.schema) if loose else value)
            except Exception as error:  # whatever the user's type raises
                problems.append(_problem(form, error, len(self.forms)))
        raise ValueError("; ".join(problems))


def _problem(form: Form, error: Exception, forms: int) -> str:
    """What was wrong, for the model."""
    if callable(details := getattr(error, "errors", None)):  # pydantic's own text has a link for people in each line
        text = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}" for each in details())
    else:
        text = (str(error) or repr(error)).replace("the arguments should", "the answer should")
    return text if forms == 1 else f"as {form.name}: {text}"


class StructuredStream(ParserStream):
    """Reads one answer: separates the reasoning, then reads the rest as a value."""

    def __init__(self, parser: _StructuredParser) -> None:
        self._structured, self._text = parser, parser.text.stream()
        self._content = ""
        self._value = Reading(lambda: parser.read_partly(self._content))

    def feed(self, piece: str) -> None:
        self._text.feed(piece)

    def partial(self) -> Structured:
        """The value as far as it goes, or went not long ago, as plain data that nothing was checked of."""
        said = self._text.partial()
        self._content = said.content
        return Structured(said.content, said.reasoning, value=self._value.at(len(said.content)), status=ParseStatus.PARTIAL)

    def finish(self) -> Structured:
        said = self._text.finish()
        value, status, error = self._structured.read(said.content)
        return Structured(said.content, said.reasoning, value=value, status=status, error=error)


class JSONParser(_StructuredParser):
    """Reads JSON, in a code block, amid prose, malformed or cut off, as a value of a user's type.

    Args:
        template: the instruction for the model, with ``{name}`` for each format; one is made up if there is none.
        reasoning, reasoning_started: see :class:`DialectParser`.
        formats: the types that the answer may have, by name; the first that fits counts. Anything :func:`form_of` takes; a string is a
            mere text for the template.

    Raises:
        ConfigurationError: there is no format, or one cannot be used.
    """

    _DEFAULT_TEMPLATE = "Answer with JSON only, in this form:\n"

    @property
    def output_schema(self) -> dict[str, Any]:
        return one_schema(self.forms.values())

    def read(self, text: str) -> tuple[Any, ParseStatus, str | None]:
        problem, found = "the answer has to be JSON", None
        for value, status in find_values(text):
            if status is ParseStatus.PARTIAL:
                return value, status, "the JSON ends before it is complete"
            try:
                return self._typed(value), status, None
            except ValueError as error:
                if found is None:
                    problem, found = str(error), value
        return found, ParseStatus.ERROR, problem

    def read_partly(self, text: str) -> Any:
        opening = re.search(r"[{\[]", text)
        return partial_value(text[opening.start() :]) if opening else None

    def _show(self, schema: Mapping[str, Any]) -> str:
        return skeleton(schema)

    def _write(self, data: Any) -> str:
        return dumps(data)


class CustomFormatParser(_StructuredParser):
    """Reads fields between tags, ``<name>value</name>``, as a value of a user's type.

    The arguments are those of :class:`JSONParser`; lagent's names are ``default_format`` and ``unknown_format``.
    """

    _DEFAULT_TEMPLATE = "Answer in this form:\n"

    def read(self, text: str) -> tuple[Any, ParseStatus, str | None]:
        fields = dict(self._fields(text))
        if not fields:
            names = ", ".join(f"<{name}>" for name in self._names())
            return None, ParseStatus.ERROR, f"the answer has to have its fields between tags: {names}"
        try:
            return self._typed(fields, loose=True), ParseStatus.OK, None
        except ValueError as error:
            return fields, ParseStatus.ERROR, str(error)

    def read_partly(self, text: str) -> Any:
        return dict(self._fields(text))

    def _names(self) -> list[str]:
        properties = [resolved(form.schema, form.schema).get("properties", {}) for form in self.forms.values()]
        return list(dict.fromkeys(name for each in properties for name in each))

    def _fields(self, text: str) -> Iterator[tuple[str, str]]:
        """Every complete field. A tag that is never closed is passed over; its end is looked for only once."""
        tag = re.compile(f"<({'|'.join(map(re.escape, self._names()))})(?:\\s[^<>]*)?>")
        at, unclosed = 0, set[str]()
        while found := tag.search(text, at):
            name, at = found[1], found.end()
            end = -1 if name in unclosed else text.find(f"</{name}>", at)
            if end >= 0:
                yield name, text[at:end]
                at = end + len(name) + 3
            else:
                unclosed.add(name)

    def _show(self, schema: Mapping[str, Any]) -> str:
        lines = []
        for name, each in resolved(schema, schema).get("properties", {}).items():
            described = resolved(each, schema)
            if description := described.get("description"):
                lines.append(f"<!-- {description} -->")
            default = described.get("default")
            lines.append(f'<{name} type="{type_in_words(each, schema)}">{"" if default is None else default}</{name}>')
        return "\n".join(lines)

    def _write(self, data: Any) -> str:
        return "\n".join(
            f"<{name}>{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}</{name}>"
            for name, value in data.items()
        )
