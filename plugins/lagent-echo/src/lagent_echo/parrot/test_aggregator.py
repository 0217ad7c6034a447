"""What the aggregator gives to the model."""

from lagent import registry
from lagent.agents import Agent
from lagent_echo import EchoModel
from lagent_echo.parrot.aggregator import ParrotAggregator


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
