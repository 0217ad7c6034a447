"""The kit for output parsers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagent.prompts.parsers import StrParser, error_of
from lagent.schema import ParsedResponse, ParseStatus, to_data
from lagent.testing.kit import Kit, check_linear

__all__ = ["ParserTests"]

_PLAIN = "The answer is 42."
_NASTY = (
    "",
    " \n\t",
    "\x00",
    "🙂é漢字\u200b",
    "\ud83d",
    "{" * 50,
    "[" * 50,
    '"',
    "\\",
    "<",
    "```",
    "}]>",
    "null",
    "NaN",
    "1e999",
)


class ParserTests(Kit):
    """What every output parser has to do.

    Fixtures:
        parser: the parser.

    Attributes:
        samples: texts in the form that the parser reads, without errors: at least one of each kind of content.
        malformed: texts in which that form is violated beyond repair, so that the parser has to report an error.
        examples: how many random texts each test tries.
    """

    samples: ClassVar[Sequence[str]] = (_PLAIN,)
    malformed: ClassVar[Sequence[str]] = ()
    examples: ClassVar[int] = 60

    @pytest.fixture
    def parser(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a fixture 'parser' that returns the parser to test")

    def _texts(self) -> st.SearchStrategy[str]:
        """Texts near to what the parser reads: pieces of the samples, of malformed texts and of nasty characters, cut and mixed."""
        known = [*self.samples, *self.malformed, *_NASTY]
        cut = st.sampled_from(known).flatmap(
            lambda text: st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(lambda at: text[min(at) : max(at)])
        )
        pieces = st.one_of(st.sampled_from(known), cut, st.text(max_size=20))
        return st.lists(pieces, max_size=4).map("".join)

    # Reading whole texts

    def test_samples_are_read(self, parser: StrParser) -> None:
        for text in self.samples:
            parsed = parser.parse_response(text)
            assert error_of(parsed) is None, f"{text!r} is not read: {error_of(parsed)}"
            assert not isinstance(parsed, ParsedResponse) or parsed.status is ParseStatus.OK, f"{text!r} is {parsed.status}"

    def test_malformed_texts_are_reported(self, parser: StrParser) -> None:
        self.skip_unless(self.malformed, "malformed is empty")
        for text in self.malformed:
            error = error_of(parser.parse_response(text))
            assert error is not None, f"{text!r} is read without an error"
            assert error.strip(), f"the error of {text!r} says nothing that the model could use"

    def test_no_text_raises(self, parser: StrParser) -> None:
        @settings(max_examples=self.examples, deadline=None)
        @given(self._texts())
        def check(text: str) -> None:
            parser.parse_response(text)

        check()

    def test_reading_twice_gives_the_same(self, parser: StrParser) -> None:
        for text in (*self.samples, *self.malformed):
            first = to_data(parser.parse_response(text))
            for other in (*self.samples, *self.malformed):
                parser.parse_response(other)
            assert to_data(parser.parse_response(text)) == first, "the parser keeps something of the texts it has read"

    def test_round_trip(self, parser: StrParser) -> None:
        for text in self.samples:
            parsed = parser.parse_response(text)
            try:
                written = parser.format_response(parsed)
            except NotImplementedError:
                pytest.skip("the parser does not write what it reads")
            assert to_data(parser.parse_response(written)) == to_data(parsed), f"{text!r} was written as {written!r}"

    def test_instruction(self, parser: StrParser) -> None:
        instruction = parser.format_instruction()
        messages = instruction if isinstance(instruction, list) else [instruction]
        assert all(isinstance(message, (str, dict)) for message in messages)
        assert parser.format_instruction() == instruction, (
            "the instruction differs from call to call, which no prefix cache survives"
        )

    def test_output_schema(self, parser: StrParser) -> None:
        assert parser.output_schema is None or isinstance(parser.output_schema, dict)

    # Reading piece by piece

    def test_any_split_gives_the_same(self, parser: StrParser) -> None:
        for text in (*self.samples, *self.malformed):
            for cut in range(1, len(text), len(text) // 200 + 1):
                self._check_split(parser, [text[:cut], text[cut:]])

        @settings(max_examples=self.examples, deadline=None)
        @given(self._texts(), st.data())
        def check(text: str, data: st.DataObject) -> None:
            cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted), "cuts")
            self._check_split(parser, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)])

        check()

    def test_single_characters_give_the_same(self, parser: StrParser) -> None:
        for text in (*self.samples, *self.malformed):
            self._check_split(parser, list(text))

    def _check_split(self, parser: StrParser, pieces: list[str]) -> None:
        stream = parser.stream()
        for piece in pieces:
            stream.feed(piece)
        whole = parser.parse_response("".join(pieces))
        assert to_data(stream.finish()) == to_data(whole), f"fed as {pieces!r} it reads something else than as a whole"

    def test_asking_in_between_changes_nothing(self, parser: StrParser) -> None:
        for text in (*self.samples, *self.malformed):
            stream = parser.stream()
            for character in text:
                stream.feed(character)
                stream.partial()
            assert to_data(stream.finish()) == to_data(parser.parse_response(text))

    def test_partial_text_is_no_error(self, parser: StrParser) -> None:
        for text in self.samples:
            stream = parser.stream()
            for place, character in enumerate(text, 1):
                stream.feed(character)
                error = error_of(stream.partial())
                assert error is None, f"the beginning {text[:place]!r} of a well-formed text is called an error: {error}"

    def test_streams_are_independent(self, parser: StrParser) -> None:
        first, second = parser.stream(), parser.stream()
        text, other = self.samples[0], self.samples[-1] + "!"
        for i in range(max(len(text), len(other))):
            first.feed(text[i : i + 1])
            second.feed(other[i : i + 1])
        assert to_data(first.finish()) == to_data(parser.parse_response(text)), "two streams of a parser disturb each other"

    # Cost

    def test_cost_of_a_text_is_linear(self, parser: StrParser) -> None:
        for start, unit in self._long_texts():
            check_linear(partial(_reading, parser, start, unit), f"parse_response of {start!r} and then {unit!r} repeated")

    def test_cost_of_feeding_is_linear(self, parser: StrParser) -> None:
        for start, unit in self._long_texts():
            check_linear(partial(_feeding, parser, start, unit), f"feeding {start!r} and then {unit!r} repeated")

    def _long_texts(self) -> Iterator[tuple[str, str]]:
        """What long texts begin with, and what is repeated in them: whole samples, their punctuation, or the inside of a structure."""
        known = [text for text in (*self.samples, *self.malformed) if text]
        marks = {c for text in known for c in text if not c.isalnum() and not c.isspace()}
        yield from (("", unit) for unit in (*known, *sorted(marks)))
        yield from ((text[: len(text) * part // 4], "so it goes on ") for text in known for part in range(1, 4))


def _reading(parser: StrParser, start: str, unit: str, size: int) -> Callable[[], Any]:
    text = start + unit * (size // len(unit))
    return lambda: parser.parse_response(text)


def _feeding(parser: StrParser, start: str, unit: str, size: int) -> Callable[[], Any]:
    text = start + unit * (size // len(unit))

    def feed() -> None:
        stream = parser.stream()
        for i in range(0, len(text), 4):
            stream.feed(text[i : i + 4])
        stream.finish()

    return feed
