"""The parser passes the conformance kit of lagent."""

import pytest

from lagent import registry
from lagent.testing import ParserTests
from lagent_echo.parrot.parser import ParrotParser


class TestParrotParser(ParserTests):
    samples = ("- one\n- two", "Here they are:\n- one\n- two - or three")
    malformed = ("", "one and two")

    @pytest.fixture
    def parser(self) -> ParrotParser:
        return ParrotParser()


def test_reads_items() -> None:
    parsed = ParrotParser().parse_response("Here they are:\n- one\n- two")
    assert (parsed.content, parsed.value) == ("Here they are:", ["one", "two"])


def test_is_found_by_name() -> None:
    assert registry.get("parsers", "parrot") is ParrotParser
