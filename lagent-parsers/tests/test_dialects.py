"""What holds for every dialect, whichever it is."""

from __future__ import annotations

import codecs
import keyword
from typing import Any, ClassVar

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lagent import registry
from lagent.errors import ConfigurationError
from lagent.schema import ParsedResponse, ParseStatus, ResponseBuilder, ToolCall
from lagent.testing import ParserTests
from lagent_parsers.dialect import DialectParser

COMPONENTS = {name: registry.get("parsers", name) for name in registry.names("parsers") if name != "auto"}
DIALECTS = {
    name: component
    for name, component in COMPONENTS.items()
    if isinstance(component, type) and issubclass(component, DialectParser) and component.dialect.blocks
}
every_dialect = pytest.mark.parametrize("name", DIALECTS)

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}(\.[a-z][a-z0-9_]{0,5})?", fullmatch=True).filter(
    lambda name: not any(keyword.iskeyword(part) or part in ("all", "print") for part in name.split("."))
)
KEYS = st.one_of(NAMES, st.text("abcXYZ-_ü0123", min_size=1, max_size=8).filter(lambda key: key == key.strip()))
TEXT = st.text(max_size=30)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
CALLS = st.lists(st.builds(ToolCall, NAMES, st.dictionaries(KEYS, VALUES, max_size=4)), max_size=3)
PROSE = st.text(max_size=40).filter(lambda text: text == text.strip() and text != "")


def normal(parsed: ParsedResponse) -> tuple[Any, ...]:
    calls = [(call.name, call.arguments) for call in parsed.tool_calls]
    return parsed.content, parsed.reasoning, calls, parsed.status


def read_in(parser: DialectParser, pieces: list[str]) -> ParsedResponse:
    stream = parser.stream()
    for piece in pieces:
        stream.feed(piece)
        stream.partial()
        stream.increment()
    return stream.finish()


def markers_of(parser: DialectParser) -> set[str]:
    dialect = parser.dialect
    opens = {m for block in dialect.blocks for m in (block.open, *block.close)}
    styles = {m for style in parser.styles for m in (style.open, style.close)}
    return {*opens, *styles, *dialect.hidden, *dialect.section, *dialect.stop, "call:", "```", "<escape>", '<|"|>'}


@every_dialect
def test_what_is_written_is_read(name: str) -> None:
    parser = DIALECTS[name]()

    @settings(max_examples=15, deadline=None)
    @given(st.one_of(st.just(""), PROSE), st.one_of(st.none(), PROSE), CALLS, st.data())
    def check(content: str, reasoning: str | None, calls: list[ToolCall], data: st.DataObject) -> None:
        said = ParsedResponse(content, reasoning if parser.styles else None, calls)
        # No dialect can write its own markers into a plain text.
        assume(not any(m in text for m in markers_of(parser) for text in (content, reasoning or "")))
        if any(mark in name for mark in ("gemma",)):
            assume(not any(mark in str(call.arguments) for call in calls for mark in ("<escape>", '<|"|>')))
        text = parser.format_response(said)
        read = parser.parse_response(text)
        if calls or content:
            assert normal(read) == (content, said.reasoning, [(c.name, c.arguments) for c in calls], ParseStatus.OK), text
        assert parser.format_response(read) == text
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
        assert read_in(parser, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == read

    check()


@pytest.mark.parametrize("name", COMPONENTS)
def test_hostile_text_raises_nothing_and_is_kept(name: str) -> None:
    parser = made(name)
    dialect = getattr(parser, "dialect", None)
    blocks = dialect.blocks if dialect else ()
    begin = dialect.before if dialect else "<tool>\n"
    close = blocks[0].close[0] if blocks and blocks[0].close else "</tool>\n"
    for body in (
        "{" * 20_000,
        "[" * 20_000,
        '{"a":' * 10_000,
        "(" * 20_000,
        '"' * 20_000,
        "\\" * 20_000,
        '{"name": "f", "arguments": {"a": ' + "9" * 10_000 + "}}",
        '{"name": "f", "arguments": {"a": -1e999, "b": NaN}}',
        "\x00\ud83d\udfff\ufeff",
        "<" * 20_000,
        "```" * 5_000,
        "'" * 20_001,
        "\n" * 20_000,
    ):
        for text in (begin + body, begin + body + close, (begin + body[:10]) * 500, (begin + close) * 500):
            parsed = parser.parse_response(text)
            if isinstance(parsed, ParsedResponse) and not (parsed.tool_calls or parsed.reasoning or parsed.value or parsed.error):
                kept = "".join(parsed.content.split())
                markers = {*dialect.hidden, *dialect.section, *dialect.stop, dialect.before, dialect.lead} if dialect else set()
                assert kept or not text.strip() or any(marker and marker in text for marker in markers)


@pytest.mark.parametrize("name", COMPONENTS)
def test_ten_megabytes_of_one_character(name: str) -> None:
    parser = made(name)
    first = parser.dialect.blocks[0].open[0] if getattr(parser, "dialect", None) and parser.dialect.blocks else "<"
    text = "x" + first * 10_000_000
    parsed = parser.parse_response(text)
    if isinstance(parser, DialectParser):
        assert text in (parsed.content.removeprefix(parser.lead), parsed.reasoning)


def made(name: str) -> Any:
    arguments: dict[str, Any] = {
        "tool": {"tool_type": "tool"},
        "json": {"answer": dict},
        "custom-format": {"answer": {"properties": {"tool": {}}}},
    }
    return registry.create("parsers", {"type": name, **arguments.get(name, {})})


# The conformance kit, for every dialect ---------------------------------------------------------------------------


KINDS = ("hermes", "llama3-json", "code-block", "mistral", "harmony", "react", "qwen3-coder", "pythonic", "gemma-4")


def kit(name: str) -> type[ParserTests]:
    writer = DIALECTS[name]()
    calls = [ToolCall("get_weather", {"city": "Zürich", "days": 2}), ToolCall("now", {})]
    said = [
        ParsedResponse("The answer is 42."),
        ParsedResponse("", None, calls[:1]),
        ParsedResponse("Let me look.", None, calls),
        *([ParsedResponse("The answer is 42.", "Hm, six by nine.")] if writer.styles else []),
    ]

    class Tests(ParserTests):
        """The cost is measured for every kind of dialect, and for the others on what is their own."""

        samples: ClassVar = tuple(map(writer.format_response, said))
        examples: ClassVar = 12

        @pytest.fixture
        def parser(self) -> Any:
            return DIALECTS[name]()

        def _units(self) -> list[str]:
            begin = writer.dialect.before
            return [
                *(super()._units() if name in KINDS else self.samples[1:2]),
                begin,
                begin + '{"',
                begin + "'" + writer.dialect.after,
            ]

    Tests.__name__ = Tests.__qualname__ = f"Test_{name}"
    return Tests


for name in DIALECTS:
    globals()[f"Test_{name}"] = kit(name)


# What a dialect tells and is told ---------------------------------------------------------------------------------


def test_the_instruction_shows_the_tools_and_a_call_that_the_parser_reads() -> None:
    tools = [{"type": "function", "function": {"name": "zip", "parameters": {"properties": {"code": {"type": "string"}}}}}]
    for name, component in DIALECTS.items():
        parser = component()
        instruction = parser.format_tools(tools)
        assert '{"name": "zip"' in instruction
        assert parser.example in instruction
        read = parser.parse_response(parser.example)
        assert [call.name for call in read.tool_calls] == ["example_function"], name


def test_the_instruction_lets_untyped_values_be_read_by_the_schema() -> None:
    parser = registry.create("parsers", "qwen3-coder")
    text = "<tool_call>\n<function=zip>\n<parameter=code>\n12345\n</parameter>\n</function>\n</tool_call>"
    assert parser.parse_response(text).tool_calls[0].arguments == {"code": 12345}
    parser.format_tools([{"name": "zip", "parameters": {"properties": {"code": {"type": "string"}}}}])
    assert parser.parse_response(text).tool_calls[0].arguments == {"code": "12345"}


def test_an_unknown_style_of_reasoning_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="there is no style of reasoning 'thnik'; there are none, think,"):
        registry.create("parsers", {"type": "hermes", "reasoning": "thnik"})
    with pytest.raises(ConfigurationError, match="reasoning_started needs a style of reasoning"):
        registry.create("parsers", {"type": "hermes", "reasoning_started": True})


def test_bytes_that_a_decoder_cuts_anywhere_are_read_the_same() -> None:
    text = 'Gleich — 好的 🌦\n<tool_call>\n{"name": "f", "arguments": {"ö": "北京 👩‍🚀"}}\n</tool_call>'
    parser = registry.create("parsers", "hermes")
    decoder, stream = codecs.getincrementaldecoder("utf-8")(), parser.stream()
    for byte in text.encode():
        stream.feed(decoder.decode(bytes([byte])))
    assert stream.finish() == parser.parse_response(text)


def test_increments_make_up_the_whole() -> None:
    parser = registry.create("parsers", {"type": "hermes", "reasoning": "think"})
    said = ParsedResponse("One moment.", "Hm.", [ToolCall("f", {"a": 1}), ToolCall("g", {})])
    stream, builder = parser.stream(), ResponseBuilder()
    for character in parser.format_response(said):
        stream.feed(character)
        builder.add(stream.increment())
    stream.finish()
    builder.add(stream.increment())
    response = builder.response()
    assert (response.content, response.reasoning, response.tool_calls) == (said.content, said.reasoning, said.tool_calls)


def test_a_call_is_seen_while_it_is_written() -> None:
    stream = registry.create("parsers", "hermes").stream()
    stream.feed('Writing.\n<tool_call>\n{"name": "write", "arguments": {"text": "once up')
    partial = stream.partial()
    assert (partial.content, partial.tool_calls, partial.status) == ("Writing.", [], ParseStatus.PARTIAL)
    assert partial.value == ToolCall("write", {"text": "once up"})
