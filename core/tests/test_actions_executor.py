"""Executors run the action that a message names: the same in both colours, and errors stay in the result."""

import asyncio
import copy
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.actions import (
    ActionExecutor,
    AsyncActionExecutor,
    AsyncActionMixin,
    BaseAction,
    Calculator,
    FinishAction,
    InvalidAction,
    NoAction,
    tool_api,
    tool_name,
)
from lagent.errors import ActionArgumentsError, ConfigurationError, HookError
from lagent.hooks import Hook, register_hook
from lagent.registry import register
from lagent.schema import ActionReturn, ActionStatusCode, ActionValidCode, AgentMessage, FunctionCall


class Echo(BaseAction):
    """Say it again"""

    examples = ({"question": "Say hi", "arguments": {"text": "hi"}, "result": "hi", "answer": "hi"},)

    def run(self, text: str) -> str:
        return text


class Toolkit(BaseAction):
    """Two things"""

    examples = {"later": [{"question": "When?", "arguments": {}, "result": "later", "answer": "Later."}]}

    @tool_api
    def now(self, items: Any = None, session_id: Any = None) -> str:
        """Now."""
        if items is not None:
            items.append("changed")
        return f"now {session_id}"

    @tool_api
    async def later(self) -> str:
        """Later."""
        await asyncio.sleep(0)
        return "later"


async def upper(text: str) -> str:
    """Write large"""
    return text.upper()


class Colour:
    """Calls an executor of either kind."""

    def __init__(self, asynchronous: bool) -> None:
        self.executor = AsyncActionExecutor if asynchronous else ActionExecutor
        self.asynchronous = asynchronous

    def settle(self, value: Any) -> Any:
        async def awaited() -> Any:
            return await value

        return asyncio.run(awaited()) if self.asynchronous else value

    def call(self, executor: Any, name: str, parameters: Any = None, session_id: Any = 0) -> Any:
        return self.settle(executor(AgentMessage({"name": name, "parameters": parameters or {}}), session_id=session_id)).content


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return Colour(request.param)


# What there is to call -------------------------------------------------------------------------------------------


def test_an_executor_offers_its_actions() -> None:
    executor = ActionExecutor([Echo(), Toolkit(), upper], finish_in_action=True)
    assert executor.keys() == ["Echo", "Toolkit", "upper", "FinishAction"]
    assert "Toolkit" in executor
    assert "Toolkit.now" not in executor
    assert [d["name"] for d in executor.description()] == ["Echo", "Toolkit.now", "Toolkit.later", "upper", "FinishAction"]
    tools = executor.tools()
    assert [tool["function"]["name"] for tool in tools] == ["Echo", "Toolkit-now", "Toolkit-later", "upper", "FinishAction"]
    assert tools[0] == {
        "type": "function",
        "function": {
            "name": "Echo",
            "description": "Say it again",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
                "additionalProperties": False,
            },
            "examples": list(Echo.examples),
        },
    }
    assert tools[2]["function"]["examples"] == Toolkit.examples["later"]
    assert all("examples" not in tools[i]["function"] for i in (1, 3, 4))


def test_one_action_and_none() -> None:
    assert ActionExecutor(Echo()).keys() == ["Echo"]
    assert ActionExecutor({"type": Echo}).keys() == ["Echo"]
    assert ActionExecutor().keys() == ActionExecutor(None).keys() == []


def test_actions_by_name_and_configuration() -> None:
    with register("actions", "echo", Echo), register("actions", "upper", upper):
        executor = ActionExecutor(
            ["echo", {"type": Toolkit}, Calculator, "upper", {"type": "calculator", "description": {"name": "c"}}]
        )
    assert executor.keys() == ["Echo", "Toolkit", "Calculator", "upper", "c"]


def test_what_is_no_action_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="3 is no action"):
        ActionExecutor([3])
    with pytest.raises(ConfigurationError, match="two actions are called 'Echo'"):
        ActionExecutor([Echo(), Echo()])
    with pytest.raises(ConfigurationError, match=r"'Toolkit.now' and another action are both called 'Toolkit-now'"):
        ActionExecutor([Echo({"name": "Toolkit-now"}), Toolkit()])


def test_the_list_that_was_given_stays_as_it_is() -> None:
    actions: list[Any] = [Echo, {"type": Toolkit}]
    before = copy.copy(actions)
    ActionExecutor(actions, finish_in_action=True)
    assert actions == before


def test_items_can_be_set_and_deleted(colour: Colour) -> None:
    executor = colour.executor(Echo())
    executor["again"] = {"type": Echo}
    executor["Toolkit"] = Toolkit()
    assert colour.call(executor, "again", {"text": "x"}).format_result() == "x"
    assert [d["name"] for d in executor.description()] == ["Echo", "again", "Toolkit.now", "Toolkit.later"]
    del executor["again"]
    assert executor.keys() == ["Echo", "Toolkit"]
    assert colour.call(executor, "again").valid == ActionValidCode.INVALID


@given(st.text(min_size=1, max_size=100), st.text(min_size=1, max_size=100))
def test_tool_names_follow_the_rules_and_stay_apart(first: str, second: str) -> None:
    names = [first, f"{first}.{second}"]
    encoded = [tool_name(name) for name in names]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in encoded)
    assert len(set(encoded)) == 2


# Calling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "result"),
    [
        ("Echo", {"text": "x"}, "x"),
        ("Echo", '{"text": "x"}', "x"),
        ("Echo.run", {"text": "x"}, "x"),
        ("Toolkit.now", {}, "now 7"),
        ("Toolkit-now", {}, "now 7"),
        ("Toolkit.now", {"session_id": "another's"}, "now 7"),
        ("Toolkit.later", {}, "later"),
        ("upper", {"text": "x"}, "X"),
        ("dotted.name", {"text": "x"}, "x"),
        ("dotted-name", {"text": "x"}, "x"),
        ("搜索", {"text": "x"}, "x"),
        (tool_name("搜索"), {"text": "x"}, "x"),
    ],
)
@pytest.mark.parametrize("content", [FunctionCall, lambda name, parameters: {"name": name, "parameters": parameters}])
def test_every_form_of_a_call(colour: Colour, content: Any, name: str, parameters: Any, result: str) -> None:
    executor = colour.executor([Echo(), Toolkit(), upper, Echo({"name": "dotted.name"}), Echo({"name": "搜索"})])
    message = AgentMessage(content(name, parameters), sender="model")
    before = message.model_dump()
    answer = colour.settle(executor(message, session_id=7))
    assert answer.sender == colour.executor.__name__
    assert isinstance(answer.content, ActionReturn)
    assert answer.content.format_result() == result
    assert answer.content.state == ActionStatusCode.SUCCESS
    assert answer.content.valid == ActionValidCode.OPEN
    assert message.model_dump() == before


def test_an_action_cannot_change_the_message(colour: Colour) -> None:
    message = AgentMessage({"name": "Toolkit.now", "parameters": {"items": [1]}})
    colour.settle(colour.executor(Toolkit())(message))
    assert message.content == {"name": "Toolkit.now", "parameters": {"items": [1]}}


def test_actions_of_any_colour_in_executors_of_any_colour(colour: Colour) -> None:
    class Own(AsyncActionMixin, Echo):
        pass

    class Old(Echo):
        def __call__(self, inputs: Any, name: str = "run", session_id: Any = None) -> Any:
            return ActionReturn(args=inputs, result=[{"type": "text", "content": f"old {name}"}])

    executor = colour.executor([Own(), Old()])
    assert colour.call(executor, "Own", {"text": "x"}).format_result() == "x"
    assert colour.call(executor, "Old", {"text": "x"}).format_result() == "old run"


async def test_plain_actions_do_not_block_the_loop() -> None:
    proceed = threading.Event()

    def wait() -> str:
        assert proceed.wait(30)
        return "done"

    async def release() -> str:
        proceed.set()
        return "released"

    executor = AsyncActionExecutor([wait, release])
    calls = [executor(AgentMessage(FunctionCall(name, {}))) for name in ("wait", "release")]
    assert [message.content.format_result() for message in await asyncio.gather(*calls)] == ["done", "released"]


async def test_nothing_plain_runs_on_the_loop() -> None:
    threads = []

    class Plain(Echo):
        def __call__(self, inputs: Any, name: str = "run", session_id: Any = None) -> Any:
            threads.append(threading.current_thread())
            return ActionReturn()

        def close_session(self, session_id: Any) -> None:
            threads.append(threading.current_thread())

    executor = AsyncActionExecutor([Plain()])
    await executor(AgentMessage(FunctionCall("Plain", {})))
    await executor.close_session(0)
    assert len(threads) == 2
    assert threading.current_thread() not in threads


def test_an_action_may_run_another_executor(colour: Colour) -> None:
    async def innermost() -> str:
        await asyncio.sleep(0)
        return "inside"

    def nested(action: Any) -> Any:
        executor = ActionExecutor([action])

        async def wrapped() -> str:
            message = executor(AgentMessage(FunctionCall(executor.keys()[0], {})))
            return f"({message.content.format_result()})"

        return wrapped

    assert colour.call(colour.executor([nested(nested(innermost))]), "wrapped").format_result() == "((inside))"


def test_unknown_names_come_back_with_the_known_ones(colour: Colour) -> None:
    result = colour.call(colour.executor([Echo(), Toolkit()], invalid_action=InvalidAction("Non.")), "Ecko", {"text": "x"})
    assert result.errmsg == "Non. There is no 'Ecko'; there are: Echo, Toolkit.now, Toolkit.later."
    assert result.args == {"name": "Ecko", "parameters": {"text": "x"}}
    assert (result.valid, result.state, result.type) == (ActionValidCode.INVALID, ActionStatusCode.API_ERROR, "InvalidAction")
    assert colour.call(colour.executor(), "x").errmsg.endswith("there are: none.")


@pytest.mark.parametrize(
    ("name", "errmsg"), [("Toolkit", "invalid API: run"), ("Toolkit.x", "invalid API: x"), ("Echo.x", "(known: run)")]
)
def test_unknown_apis_of_known_actions(colour: Colour, name: str, errmsg: str) -> None:
    result = colour.call(colour.executor([Echo(), Toolkit()]), name)
    assert errmsg in result.errmsg
    assert result.state == ActionStatusCode.API_ERROR


@pytest.mark.parametrize("parameters", ["the end", {"response": "the end"}])
@pytest.mark.parametrize("finish_in_action", [False, True])
def test_finishing(colour: Colour, finish_in_action: bool, parameters: Any) -> None:
    result = colour.call(colour.executor(finish_in_action=finish_in_action), "FinishAction", parameters)
    assert (result.valid, result.format_result(), result.args) == (ActionValidCode.FINISH, "the end", {"text": "the end"})


def test_no_action(colour: Colour) -> None:
    executor = colour.executor([Echo()], no_action=NoAction("Use the format"), finish_action=FinishAction({"name": "end"}))
    assert colour.call(executor, "NoAction").errmsg == "Use the format"
    assert colour.call(executor, "NoAction", "Better").errmsg == "Better"
    assert colour.call(executor, "NoAction").valid == ActionValidCode.INVALID
    assert colour.call(executor, "end", "x").valid == ActionValidCode.FINISH
    assert NoAction()({}).errmsg == "Please follow the format"


@pytest.mark.parametrize("content", ["text", {"name": "Echo"}, {"parameters": {}}, {"name": 3, "parameters": {}}, None])
def test_a_message_that_is_no_call(colour: Colour, content: Any) -> None:
    with pytest.raises(ActionArgumentsError, match=r"should be \{'name'"):
        colour.settle(colour.executor([Echo()])(AgentMessage(content)))


def test_a_forward_of_ones_own(colour: Colour) -> None:
    class Sync(ActionExecutor):
        def forward(self, name: str, parameters: Any, session_id: Any = 0, **kwargs: Any) -> Any:
            if name == "own":
                return AgentMessage("own", sender=kwargs["who"])
            return super().forward(name, parameters, session_id)

    class Async(AsyncActionExecutor):
        async def forward(self, name: str, parameters: Any, session_id: Any = 0, **kwargs: Any) -> Any:
            if name == "own":
                return AgentMessage("own", sender=kwargs["who"])
            return await super().forward(name, parameters, session_id)

    executor = (Async if colour.asynchronous else Sync)([Echo()])
    assert colour.settle(executor(AgentMessage(FunctionCall("own", {})), who="me")) == AgentMessage("own", sender="me")
    assert colour.call(executor, "Echo", {"text": "x"}).format_result() == "x"


# Hooks -----------------------------------------------------------------------------------------------------------


class Shout(Hook):
    def before_action(self, executor: Any, message: Any, session_id: Any) -> None:
        message.content["parameters"]["text"] += f" {session_id}"

    def after_action(self, executor: Any, message: Any, session_id: Any) -> Any:
        return AgentMessage(message.content.format_result().upper(), sender="hook")


class Twice:
    async def before_action(self, executor: Any, message: Any, session_id: Any) -> Any:
        text = message.content["parameters"]["text"]
        return AgentMessage({"name": message.content["name"], "parameters": {"text": f"{text} {text}"}})


class Broken:
    def after_action(self, executor: Any, message: Any, session_id: Any) -> None:
        raise KeyError("oops")


def test_hooks_change_calls_and_results_but_not_what_was_given(colour: Colour) -> None:
    executor = colour.executor([Echo()], hooks=[Shout(), {"type": Twice}])
    message = AgentMessage({"name": "Echo", "parameters": {"text": "x"}})
    assert colour.settle(executor(message, session_id=7)) == AgentMessage("X 7 X 7", sender="hook")
    assert message.content["parameters"] == {"text": "x"}


def test_hooks_can_be_removed_and_named(colour: Colour) -> None:
    executor = colour.executor([Echo()])
    with register("hooks", "shout", Shout):
        handle = executor.register_hook("shout")
    assert colour.call(executor, "Echo", {"text": "x"}) == "X 0"
    handle.remove()
    assert colour.call(executor, "Echo", {"text": "x"}).format_result() == "x"


def test_an_error_in_a_hook_names_it(colour: Colour) -> None:
    executor = colour.executor([Echo()], hooks=[Broken()])
    with pytest.raises(HookError, match="Broken failed in after_action") as caught:
        colour.call(executor, "Echo", {"text": "x"})
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.fixture
def hook_of_the_process() -> Iterator[None]:
    handle = register_hook(Shout())
    yield
    handle.remove()


@pytest.mark.usefixtures("hook_of_the_process")
def test_hooks_of_the_process_run_as_well(colour: Colour) -> None:
    message = AgentMessage({"name": "Echo", "parameters": {"text": "x"}})
    assert colour.settle(colour.executor([Echo()])(message)).content == "X 0"
    assert message.content["parameters"] == {"text": "x"}


# Closing ---------------------------------------------------------------------------------------------------------


class Holding(BaseAction):
    closed: list[Any]

    def __init__(self, name: str, error: Exception | None = None) -> None:
        super().__init__({"name": name})
        self.closed, self.error = [], error

    def run(self) -> None: ...

    def close_session(self, session_id: Any) -> None:
        self.closed.append(session_id)
        if self.error:
            raise self.error

    async def close(self) -> None:
        self.closed.append("all")


def test_closing_reaches_every_action_that_holds_something(colour: Colour) -> None:
    holding = [Holding("a"), Holding("b")]
    executor = colour.executor([holding[0], Echo(), upper, holding[1]])
    colour.settle(executor.close_session("s"))
    colour.settle(executor.close())
    assert [action.closed for action in holding] == [["s", "all"]] * 2


def test_one_that_fails_to_close_does_not_keep_the_others(colour: Colour) -> None:
    holding = [Holding("a", OSError("first")), Holding("b", OSError("second")), Holding("c")]
    with pytest.raises(OSError, match="first"):
        colour.settle(colour.executor(holding).close_session(1))
    assert [action.closed for action in holding] == [[1]] * 3


def test_a_finish_action_in_the_list_is_closed_once(colour: Colour) -> None:
    finish = Holding("end")
    colour.settle(colour.executor(finish_action=finish, finish_in_action=True).close())
    assert finish.closed == ["all"]


def test_actions_of_other_distributions_are_found_or_named() -> None:
    import lagent.actions

    with pytest.raises(AttributeError, match="no attribute 'NoSuchAction'"):
        lagent.actions.NoSuchAction  # noqa: B018
