"""What the agent answers and remembers."""

from lagent import registry
from lagent_echo import EchoModel
from lagent_echo.parrot.agent import ParrotAgent


def test_repeats_the_answer_and_remembers_it_so() -> None:
    model = EchoModel(["Hello.", "Bye."])
    agent = ParrotAgent(model, times=2)
    assert agent("Hi.").content == "Hello. Hello."
    agent("See you.")
    assert [message["content"] for message in model.requests[1].messages] == ["Hi.", "Hello. Hello.", "See you."]


def test_is_found_by_name() -> None:
    assert registry.get("agents", "parrot") is ParrotAgent
