"""The kit for actions."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagent.actions import ActionExecutor, AsyncActionExecutor
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage, FunctionCall, to_data
from lagent.testing.kit import Kit, value_of

__all__ = ["ActionTests"]

_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


class ActionTests(Kit):
    """What every action has to do.

    Fixtures:
        action: the action.

    Attributes:
        calls: arguments of calls that succeed; for a toolkit, pairs of an API's name and the arguments.
        failing_calls: the same for calls with well-formed arguments that the action must report as failed.
        slow_call: a call that takes a second or longer, to test the time limit with.
        deterministic: whether the same call gives the same result.
        takes_any_text: whether its parser takes any text as an argument, so that random text would run the action.
    """

    calls: ClassVar[Sequence[Any]] = ()
    failing_calls: ClassVar[Sequence[Any]] = ()
    slow_call: ClassVar[Any] = None
    deterministic: ClassVar[bool] = True
    takes_any_text: ClassVar[bool] = False

    @pytest.fixture
    def action(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a fixture 'action' that returns the action to test")

    # For the tests

    def run(self, action: Any, arguments: Any, api: str = "run", session_id: Any = None) -> ActionReturn:
        result = value_of(action, arguments, api, session_id)
        assert isinstance(result, ActionReturn)
        return result

    def _known(self, action: Any, calls: Sequence[Any], what: str) -> list[tuple[str, Any]]:
        self.skip_unless(calls, f"{what} is empty")
        return [call if action.is_toolkit else ("run", call) for call in calls]

    def _apis(self, action: Any) -> list[dict[str, Any]]:
        apis: list[dict[str, Any]] = action.description.get("api_list", [action.description])
        assert apis, "a toolkit has no API"
        return apis

    # What the model is told

    def test_description(self, action: Any) -> None:
        assert re.fullmatch(r"\w[\w.\- ]*", action.name), f"{action.name!r} is no name for an action"
        for api in self._apis(action):
            assert api["description"].strip(), f"{api['name']!r} has no description: the model knows it by that alone"
            for parameter in api["parameters"]:
                assert parameter.get("description", "").strip(), (
                    f"parameter {parameter['name']!r} of {api['name']!r} has no description"
                )
                assert parameter["name"] != "session_id", "session_id is given by the caller and not shown to the model"
        json.dumps(action.description)

    def test_schema(self, action: Any) -> None:
        tools = ActionExecutor(action).tools()
        assert len({tool["function"]["name"] for tool in tools}) == len(self._apis(action))
        for tool in tools:
            schema = tool["function"]["parameters"]
            assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool["function"]["name"])
            assert schema["type"] == "object"
            assert set(schema["required"]) <= schema["properties"].keys(), "a required parameter is not described"
            for name, value in schema["properties"].items():
                types = value.get("type", [])
                assert set([types] if isinstance(types, str) else types) <= _TYPES, f"{name!r} has the type {types!r}"
            json.dumps(tool)

    # Calls

    def test_calls(self, action: Any) -> None:
        for api, arguments in self._known(action, self.calls, "calls"):
            result = self.run(action, arguments, api)
            assert result.state == ActionStatusCode.SUCCESS, f"{api}({arguments}) failed: {result.errmsg}"
            assert result.type == action.name
            for part in result.result or []:
                assert isinstance(part["type"], str)
                assert "content" in part
            json.dumps(to_data(result))

    def test_arguments_as_text(self, action: Any) -> None:
        for api, arguments in self._known(action, self.calls, "calls"):
            assert self.run(action, json.dumps(arguments), api).state == ActionStatusCode.SUCCESS, (
                "arguments as JSON text are not read"
            )

    def test_failures_are_reported(self, action: Any) -> None:
        for api, arguments in self._known(action, self.failing_calls, "failing_calls"):
            result = self.run(action, arguments, api)
            assert result.state != ActionStatusCode.SUCCESS, f"{api}({arguments}) should have failed"
            assert (result.errmsg or "").strip(), "the failure says nothing that the model could use"

    def test_arguments_are_not_changed(self, action: Any) -> None:
        for api, arguments in self._known(action, self.calls, "calls"):
            before = copy.deepcopy(arguments)
            self.run(action, arguments, api)
            assert arguments == before

    def test_same_call_gives_the_same(self, action: Any) -> None:
        self.skip_unless(self.deterministic, "deterministic is False")
        for api, arguments in self._known(action, self.calls, "calls"):
            first = self.run(action, arguments, api)
            expected = copy.deepcopy(first.result)
            (first.result or []).append({"type": "text", "content": "changed by the caller"})
            assert self.run(action, arguments, api).result == expected

    # Validation

    def test_missing_arguments_are_refused(self, action: Any) -> None:
        for api in self._apis(action):
            if api["required"]:
                self._check_refused(action, {}, api)

    def test_unknown_arguments_are_refused(self, action: Any) -> None:
        name = "no_such_parameter"
        for api, arguments in self._known(action, self.calls, "calls"):
            self._check_refused(action, {**arguments, name: 1}, {"name": api})

    def test_wrong_types_are_refused(self, action: Any) -> None:
        for api, arguments in self._known(action, self.calls, "calls"):
            types = {name: schema.get("type") for name, schema in action.schema(api)["properties"].items()}
            for name in arguments.keys() & {name for name, type_ in types.items() if type_ in _TYPES - {"object"}}:
                self._check_refused(action, {**arguments, name: {"no": "such value"}}, {"name": api})

    def test_unknown_api_is_refused(self, action: Any) -> None:
        result = self.run(action, {}, "no_such_api")
        assert result.state == ActionStatusCode.API_ERROR
        assert "no_such_api" in (result.errmsg or "")

    def test_nothing_that_a_model_writes_raises(self, action: Any) -> None:
        self.skip_unless(not self.takes_any_text, "takes_any_text is True")
        apis = [api["name"] if action.is_toolkit else "run" for api in self._apis(action) if api["required"]]
        self.skip_unless(apis, "it takes no required arguments, so anything may be a call of it")

        @settings(max_examples=40, deadline=None)
        @given(st.sampled_from(apis), st.text(max_size=30) | st.none() | st.integers() | st.lists(st.integers(), max_size=2))
        def check(api: str, inputs: Any) -> None:
            result = self.run(action, inputs, api)
            assert result.state == ActionStatusCode.ARGS_ERROR
            assert result.errmsg

        check()

    def _check_refused(self, action: Any, arguments: Any, api: dict[str, Any]) -> None:
        result = self.run(action, arguments, api["name"] if action.is_toolkit else "run")
        assert result.state == ActionStatusCode.ARGS_ERROR, f"{api['name']}({arguments}) was not refused for its arguments"
        assert (result.errmsg or "").strip(), "the refusal says nothing that the model could use"

    # Running

    def test_time_limit(self, action: Any) -> None:
        self.skip_unless(self.slow_call is not None, "slow_call is not set")
        ((api, arguments),) = self._known(action, [self.slow_call], "slow_call")
        action.timeout = 0.05
        result = self.run(action, arguments, api)
        assert result.state == ActionStatusCode.API_ERROR, "the action did not keep its time limit"
        assert result.errmsg

    def test_concurrent_calls(self, action: Any) -> None:
        calls = self._known(action, self.calls, "calls")
        tasks = [(*calls[number % len(calls)], number % 4) for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda task: self.run(action, task[1], task[0], task[2]), tasks))
        for (api, arguments, session_id), result in zip(tasks, results, strict=True):
            assert result.state == ActionStatusCode.SUCCESS
            if self.deterministic:
                expected = self.run(action, arguments, api, session_id).result
                assert result.result == expected, "concurrent calls were mixed up"

    @pytest.mark.parametrize("executor", [ActionExecutor, AsyncActionExecutor])
    def test_in_an_executor(self, action: Any, executor: Any) -> None:
        for api, arguments in self._known(action, self.calls, "calls"):
            name = f"{action.name}.{api}" if action.is_toolkit else action.name
            message = AgentMessage(FunctionCall(name, arguments), sender="Agent")
            answer = value_of(executor(action), message, session_id="会话/1")
            assert answer.content.state == ActionStatusCode.SUCCESS, answer.content.errmsg
            AgentMessage.model_validate(json.loads(answer.model_dump_json()))

    def test_closing(self, action: Any) -> None:
        executor = ActionExecutor(action)
        for _ in range(2):
            value_of(executor.close_session, "no such session")
            value_of(executor.close)
