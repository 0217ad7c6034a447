"""The kit for parsers: correct parsers pass, and each broken one is caught by the test that is meant for it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from lagent.prompts.parsers import ParserStream, StrParser
from lagent.schema import ParsedResponse, ParseStatus
from lagent.testing import ParserTests


class LinesParser(StrParser):
    """Reads lines of ``name: value``."""

    def stream(self) -> ParserStream:
        return LinesStream(self)

    def parse_response(self, data: str) -> Any:
        stream = self.stream()
        stream.feed(data)
        return stream.finish()

    def format_response(self, parsed: Any) -> str:
        return "\n".join(f"{name}: {value}" for name, value in parsed.value.items())


class LinesStream(ParserStream):
    def __init__(self, parser: StrParser) -> None:
        super().__init__(parser)
        self.value: dict[str, str] = {}
        self.error: str | None = None
        self.line: list[str] = []

    def feed(self, piece: str) -> None:
        first, *others = piece.split("\n")
        self.line.append(first)
        for other in others:
            self.end_line()
            self.line = [other]

    def end_line(self) -> None:
        line = "".join(self.line)
        name, colon, value = line.partition(": ")
        if colon:
            self.value[name] = value
        elif line.strip():
            self.error = f"write 'name: value', not {line!r}"

    def partial(self) -> Any:
        return self.result(ParseStatus.PARTIAL)

    def finish(self) -> Any:
        self.end_line()
        return self.result(ParseStatus.OK)

    def result(self, status: ParseStatus) -> Any:
        return ParsedResponse(value=dict(self.value), status=ParseStatus.ERROR if self.error else status, error=self.error)


class TestStrParser(ParserTests):
    @pytest.fixture
    def parser(self) -> StrParser:
        return StrParser("Answer {how}.", how="briefly")


class TestLinesParser(ParserTests):
    samples = ("city: Paris\ncountry: France\n", "", "a: b: c")
    malformed = ("no colon", "city: Paris\nno colon\n")

    @pytest.fixture
    def parser(self) -> StrParser:
        return LinesParser()


# Broken parsers ----------------------------------------------------------------------------------------------------


def with_stream(stream: type[ParserStream]) -> type[StrParser]:
    return type(stream.__name__, (LinesParser,), {"stream": lambda self: stream(self)})


class Raises(LinesParser):
    def parse_response(self, data: str) -> Any:
        return dict(line.split(": ", 1) for line in data.splitlines())


class ReadsNothing(LinesParser):
    def parse_response(self, data: str) -> Any:
        return ParsedResponse(status=ParseStatus.ERROR, error="no")


class OverlooksErrors(LinesParser):
    def parse_response(self, data: str) -> Any:
        return ParsedResponse(value=super().parse_response(data).value)


class ReportsVaguely(LinesParser):
    def parse_response(self, data: str) -> Any:
        parsed = super().parse_response(data)
        parsed.error = parsed.error and " "
        return parsed


class Remembers(LinesParser):
    seen: Any = {}

    def parse_response(self, data: str) -> Any:
        parsed = super().parse_response(data)
        self.seen = {**self.seen, **parsed.value}
        parsed.value = self.seen
        return parsed


class WritesOtherwise(LinesParser):
    def format_response(self, parsed: Any) -> str:
        return super().format_response(parsed).lower()


class CountsInstructions(LinesParser):
    counter = itertools.count()

    def format_instruction(self) -> Any:
        return f"Instruction {next(self.counter)}: write name: value"


class SchemaAsText(LinesParser):
    @property
    def output_schema(self) -> Any:
        return '{"type": "object"}'


@with_stream
class LosesTheLineAcrossPieces(LinesStream):
    def feed(self, piece: str) -> None:
        self.line = []
        super().feed(piece)


@with_stream
class NeedsTheMarkWhole(LinesStream):
    """Looks for its mark in each piece alone."""

    def feed(self, piece: str) -> None:
        super().feed(piece.replace(": ", "\x01"))

    def end_line(self) -> None:
        self.line = ["".join(self.line).replace(": ", ":").replace("\x01", ": ")]
        super().end_line()


@with_stream
class AskingEndsTheLine(LinesStream):
    def partial(self) -> Any:
        self.end_line()
        self.line = []
        return super().partial()


@with_stream
class CallsTheUnfinishedAnError(LinesStream):
    def partial(self) -> Any:
        return self._parser.parse_response("".join(self.line))


class SharesItsStream(LinesParser):
    def __init__(self) -> None:
        super().__init__()
        self.only = LinesStream(self)

    def stream(self) -> ParserStream:
        self.only.line = []
        return self.only

    def parse_response(self, data: str) -> Any:
        return LinesParser().parse_response(data)


class LooksBackEveryTime(LinesParser):
    def parse_response(self, data: str) -> Any:
        for place in range(0, len(data), 4):
            data[place:].rfind("\x01")
        return super().parse_response(data)


@with_stream
class ReadsAllAgain(LinesStream):
    def feed(self, piece: str) -> None:
        super().feed(piece)
        "".join(self.line)
        list(self.value)


BROKEN = [
    (ReadsNothing, "test_samples_are_read"),
    (OverlooksErrors, "test_malformed_texts_are_reported"),
    (ReportsVaguely, "test_malformed_texts_are_reported"),
    (Raises, "test_no_text_raises"),
    (Remembers, "test_reading_twice_gives_the_same"),
    (WritesOtherwise, "test_round_trip"),
    (CountsInstructions, "test_instruction"),
    (SchemaAsText, "test_output_schema"),
    (NeedsTheMarkWhole, "test_any_split_gives_the_same"),
    (LosesTheLineAcrossPieces, "test_single_characters_give_the_same"),
    (AskingEndsTheLine, "test_asking_in_between_changes_nothing"),
    (CallsTheUnfinishedAnError, "test_partial_text_is_no_error"),
    (SharesItsStream, "test_streams_are_independent"),
    (LooksBackEveryTime, "test_cost_of_a_text_is_linear"),
    (ReadsAllAgain, "test_cost_of_feeding_is_linear"),
]


@pytest.mark.parametrize(("parser", "test"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_parser_is_caught_by_the_test_meant_for_it(parser: type[StrParser], test: str, caught: Any) -> None:
    assert caught(TestLinesParser, test, parser)


def test_every_test_of_the_kit_catches_something() -> None:
    assert {name for name in dir(ParserTests) if name.startswith("test_")} == {test for _, test in BROKEN}
