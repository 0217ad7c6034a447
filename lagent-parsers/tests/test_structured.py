"""Structured output."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, ClassVar, Literal, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.errors import ConfigurationError
from lagent.prompts.parsers import error_of
from lagent.schema import AgentMessage, ParseStatus, to_data
from lagent.testing import ParserTests
from lagent_parsers import CustomFormatParser, JSONParser


class Person(pydantic.BaseModel):
    """A person."""

    name: str = pydantic.Field(description="Name of the person")
    age: int
    tags: list[str] = []


class Unknown(pydantic.BaseModel):
    reason: str


@attrs.define
class AttrsPerson:
    name: str
    age: int
    tags: list[str] = attrs.field(factory=list)


@dataclasses.dataclass
class DataPerson:
    name: str
    age: int
    tags: list[str] = dataclasses.field(default_factory=list)


class StructPerson(msgspec.Struct):
    name: str
    age: int
    tags: list[str] = []


class DictPerson(TypedDict, total=False):
    name: str
    age: int
    tags: list[str]


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age"],
}
FORMS = [Person, AttrsPerson, DataPerson, StructPerson, DictPerson, SCHEMA, pydantic.TypeAdapter(Person)]
TEXT = '{"name": "Ada", "age": 36, "tags": ["maths"]}'
TEMPLATE = "Answer so:\n```json\n{person}\n```\nor so:\n```json\n{unknown}\n```"


class TestJSONParser(ParserTests):
    samples: ClassVar = (TEXT, '{"reason": "nobody"}')
    malformed: ClassVar = ("I do not know.", '{"name": "Ada", "age": "old"}', "[1, 2]")

    @pytest.fixture
    def parser(self) -> Any:
        return JSONParser(TEMPLATE, person=Person, unknown=Unknown)


class TestCustomFormatParser(ParserTests):
    samples: ClassVar = ("<name>Ada</name>\n<age>36</age>\n<tags>[]</tags>", "<reason>nobody</reason>")
    malformed: ClassVar = ("I do not know.", "<name>Ada</name>\n<age>old</age>")

    @pytest.fixture
    def parser(self) -> Any:
        return CustomFormatParser("{default_format} or {unknown_format}", default_format=Person, unknown_format=Unknown)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: getattr(form, "__name__", type(form).__name__))
def test_every_kind_of_type_is_described_read_and_written(form: Any) -> None:
    parser = JSONParser(person=form)
    assert parser.output_schema["type"] == "object"
    assert set(parser.output_schema["properties"]) == {"name", "age", "tags"}
    assert '"name": "string"' in parser.format_instruction()
    parsed = parser.parse_response(TEXT)
    assert (parsed.status, to_data(parsed.value)) == (ParseStatus.OK, json.loads(TEXT))
    if isinstance(form, type) and form is not DictPerson:
        assert isinstance(parsed.value, form)
    assert (parsed["age"], "age" in parsed, parsed.get("none", 0), dict(parsed)) == (36, True, 0, json.loads(TEXT))
    assert parser.parse_response(parser.format_response(parsed)).value == parsed.value
    assert AgentMessage("x", formatted=parsed).model_dump()["formatted"]["value"] == json.loads(TEXT)
    wrong = parser.parse_response('{"name": "Ada", "age": {}}')
    assert wrong.status is ParseStatus.ERROR
    assert "age" in (error_of(wrong) or "") or "int" in (error_of(wrong) or "")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (TEXT, "ok"),
        (f"Here you are:\n```json\n{TEXT}\n```\nAnything else?", "ok"),
        (f"```\n{TEXT}\n```", "ok"),
        (f"As in [1], the answer is {TEXT}.", "ok"),
        (f"{{curly}} words, then {TEXT}", "ok"),
        ("{'name': 'Ada', 'age': 36, 'tags': ['maths'],}", "repaired"),
        ('{"name": "Ada", // who\n "age": 36, "tags": ["maths"]}', "repaired"),
        ('{name: "Ada", age: 36, tags: ["maths"]}', "repaired"),
        ('{"name": "Ada", "age": "36", "tags": ["maths"]', "repaired"),
        ('{"tags": [], "name": "Ad', "partial"),
        ('{"tags": [], "age": 3', "partial"),
        ("Ada, 36", "error"),
        ('{"name": "Ada"}', "error"),
    ],
)
def test_json_is_found_mended_or_reported(text: str, status: str) -> None:
    parsed = JSONParser(person=Person).parse_response(text)
    assert parsed.status == status
    assert (parsed.error is None) == (status in ("ok", "repaired"))
    if status in ("ok", "repaired"):
        assert parsed.value == Person(name="Ada", age=36, tags=["maths"])


def test_the_value_grows_while_it_streams() -> None:
    stream = JSONParser(person=Person).stream()
    seen = []
    for character in TEXT:
        stream.feed(character)
        partial = stream.partial()
        assert (partial.status, partial.error) == (ParseStatus.PARTIAL, None)
        if partial.value not in seen:
            seen.append(partial.value)
    assert {"name": "Ad"} in seen
    assert {"name": "Ada", "age": 36, "tags": []} in seen
    assert stream.finish().value == Person(name="Ada", age=36, tags=["maths"])


def test_reasoning_is_taken_off_first() -> None:
    parsed = JSONParser(person=Person, reasoning="think").parse_response(f'<think>\n{{"name": 1}}?\n</think>\n{TEXT}')
    assert (parsed.reasoning, parsed.value.name) == ('{"name": 1}?', "Ada")


def test_the_schema_of_several_forms_allows_each() -> None:
    schema = JSONParser(TEMPLATE, person=Person, unknown=Unknown).output_schema
    assert [set(arm["properties"]) for arm in schema["anyOf"]] == [{"name", "age", "tags"}, {"reason"}]


def test_other_types_than_objects() -> None:
    parser = JSONParser(choice=Literal["yes", "no"])
    assert parser.output_schema == {"enum": ["yes", "no"], "type": "string"}
    assert parser.parse_response('"yes"').value == "yes"
    assert parser.parse_response('"maybe"').status is ParseStatus.ERROR
    assert JSONParser(numbers=list[int]).parse_response("I say [1, 2].").value == [1, 2]


def test_a_parser_needs_a_form() -> None:
    with pytest.raises(ConfigurationError, match="JSONParser needs a format"):
        JSONParser("Answer.")
    with pytest.raises(ConfigurationError, match="person is no JSON schema"):
        JSONParser(person={"name": "string"})


def test_the_example_of_tagged_fields() -> None:
    parser = CustomFormatParser("{default_format}", default_format=Person)
    assert parser.format_instruction() == (
        "<!-- Name of the person -->\n"
        '<name type="string"></name>\n<age type="integer"></age>\n<tags type="array of string">[]</tags>'
    )
    text = "<!-- who -->\n<name type='string'>Ada & <b>Co</b></name>\n<br>\n<age>36</age><tags>[\"a\"]</tags>"
    assert parser.parse_response(text).value == Person(name="Ada & <b>Co</b>", age=36, tags=["a"])


@given(st.text(max_size=200))
def test_no_text_raises_and_its_content_stays(text: str) -> None:
    for parser in (JSONParser(person=Person), CustomFormatParser(default_format=Person)):
        assert parser.parse_response(text).content == text
