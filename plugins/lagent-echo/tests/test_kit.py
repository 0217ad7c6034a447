"""The scripted model passes the conformance kit, with a script that answers as a model would."""

import pytest

from lagent.errors import EngineError
from lagent.schema import ToolCall
from lagent.testing import AsyncModelTests, ModelTests
from lagent_echo import AsyncEchoModel, EchoModel


def failing(model_class):
    error = EngineError("the engine is on fire")
    error.__cause__ = OSError("smoke")
    return model_class(error)


def scripted(model_class):
    def answer(messages):
        asked = messages if isinstance(messages, str) else messages[-1]["content"]
        if asked == ModelTests.tool_prompt and model.requests[-1].tool_choice == "required":
            return ToolCall("get_weather", {"city": "Paris"})
        return f"One, two, three, four, five: {asked}"

    model = model_class(answer)
    return model


class TestEchoModel(ModelTests):
    deterministic = True

    @pytest.fixture
    def model(self):
        return scripted(EchoModel)

    @pytest.fixture
    def failing_model(self):
        return failing(EchoModel)


class TestAsyncEchoModel(AsyncModelTests):
    deterministic = True

    @pytest.fixture
    def model(self):
        return scripted(AsyncEchoModel)

    @pytest.fixture
    def failing_model(self):
        return failing(AsyncEchoModel)
