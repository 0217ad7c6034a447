"""The aggregator passes the conformance kit of lagent, and gives the model what it should."""

import pytest

from lagent import registry
from lagent.agents import Agent
from lagent.testing import AggregatorTests
from lagent_echo import EchoModel
from lagent_echo.parrot.aggregator import ParrotAggregator


class TestParrotAggregator(AggregatorTests):
    volatile = 1

    @pytest.fixture
    def aggregator(self) -> ParrotAggregator:
        return ParrotAggregator()


def test_the_reminder_comes_last_and_only_once() -> None:
    model = EchoModel(["First.", "Second."])
    agent = Agent(model, "Be brief.", aggregator=ParrotAggregator("Be polite."))
    agent("Hello.")
    agent("Again.")
    assert [(message["role"], message["content"]) for message in model.requests[1].messages] == [
        ("system", "Be brief."),
        ("user", "Hello."),
        ("assistant", "First."),
        ("user", "Again."),
        ("system", "Be polite."),
    ]


def test_is_found_by_name() -> None:
    assert registry.get("aggregators", "parrot") is ParrotAggregator
