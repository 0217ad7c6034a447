"""Actions describe themselves, check what they are given, and turn everything that happens into an ActionReturn."""

from __future__ import annotations

import asyncio
import functools
import math
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Any, Literal

import attrs
import pytest

from lagent.actions import (
    AsyncActionMixin,
    BaseAction,
    BaseParser,
    FunctionAction,
    JsonParser,
    ParseError,
    TupleParser,
    content_parts,
    tool_api,
)
from lagent.errors import ActionArgumentsError, ConfigurationError
from lagent.flow import current_session
from lagent.schema import ActionReturn, ActionStatusCode, ActionValidCode

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers

ASK_FOR_JSON = {"parameter_description": JsonParser.PARAMETER_DESCRIPTION}


class Bold(BaseAction):
    """Make text bold.

    Args:
        nothing: of interest
    """

    def run(self, text: str, times: int = 1, marks: list[str] | None = None) -> str:
        """
        Args:
            text (int): the text
        """
        return "*" * times + text + "*" * times


class Arithmetic(BaseAction):
    """Sums and differences"""

    @tool_api
    def add(self, a: int, b: Annotated[int, "addend"] = 1):  # type: ignore[no-untyped-def]
        """Add.

        Args:
            a: augend
            b: ignored
        """
        return a + b

    @tool_api(explode_return=True)
    async def split(self, a, b):  # type: ignore[no-untyped-def]
        """Divide with rest.

        Args:
            a (int): dividend
            b (:class:`int`): divisor

        Returns:
            dict: both results
                * quotient (int): how often
                * rest: what is left
        """
        return {"quotient": a // b, "rest": a % b}

    def helper(self) -> None:
        """No API."""


class Whoami(BaseAction):
    def run(self, greeting: str = "hi", session_id: Any = "nobody") -> str:
        return f"{greeting} {session_id} {current_session.get()}"


def text_of(result: ActionReturn) -> str:
    assert result.errmsg is None
    return result.format_result()


# Describing ------------------------------------------------------------------------------------------------------


def test_description_of_a_tool() -> None:
    assert Bold().description == {
        "name": "Bold",
        "description": "Make text bold.",
        "parameters": [
            {"name": "text", "type": "STRING", "description": "the text"},
            {"name": "times", "type": "NUMBER", "description": ""},
            {"name": "marks", "type": "Array", "description": ""},
        ],
        "required": ["text"],
        **ASK_FOR_JSON,
    }
    assert repr(Bold()) == str(Bold()) == str(Bold().description)
    assert not Bold().is_toolkit


def test_an_action_without_docstring_has_no_description() -> None:
    assert Whoami().description["description"] == ""


def test_description_of_a_toolkit() -> None:
    toolkit = Arithmetic()
    assert toolkit.is_toolkit
    assert toolkit.name == "Arithmetic"
    assert toolkit.description == {
        "name": "Arithmetic",
        "description": "Sums and differences",
        "api_list": [
            {
                "name": "add",
                "description": "Add.",
                "parameters": [
                    {"name": "a", "type": "NUMBER", "description": "augend"},
                    {"name": "b", "type": "NUMBER", "description": "addend"},
                ],
                "required": ["a"],
                **ASK_FOR_JSON,
            },
            {
                "name": "split",
                "description": "Divide with rest.",
                "parameters": [
                    {"name": "a", "type": "NUMBER", "description": "dividend"},
                    {"name": "b", "type": "NUMBER", "description": "divisor"},
                ],
                "required": ["a", "b"],
                "return_data": [
                    {"name": "quotient", "type": "NUMBER", "description": "how often"},
                    {"name": "rest", "description": "what is left"},
                ],
                **ASK_FOR_JSON,
            },
        ],
    }


def test_schemas_of_a_toolkit() -> None:
    assert Arithmetic().schema("add") == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "augend"},
            "b": {"type": "integer", "default": 1, "description": "addend"},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    with pytest.raises(KeyError):
        Arithmetic().schema("helper")


def test_options_of_tool_api() -> None:
    @tool_api(returns_named_value=True, exclude_arguments="b", docstring_option=1)
    def by_exclusion(a: int, b: int = 0, c: float = 0.0, *args: int, **kwargs: int) -> tuple[int, float]:
        """Do.

        Returns:
            total (float): of all
            (int): without a name
        """
        return a, c

    @tool_api(include_arguments=["a", "c"])
    def by_inclusion(a: dict[str, int], b: bool = True, c: Literal["x", 1] = "x") -> None: ...

    described = by_exclusion.api_description  # type: ignore[attr-defined]
    assert [(p["name"], p["type"]) for p in described["parameters"]] == [("a", "NUMBER"), ("c", "FLOAT")]
    assert described["return_data"] == [
        {"name": "total", "type": "FLOAT", "description": "of all"},
        {"type": "NUMBER", "description": "without a name"},
    ]
    described = by_inclusion.api_description  # type: ignore[attr-defined]
    assert [(p["name"], p["type"]) for p in described["parameters"]] == [("a", "STRING"), ("c", "STRING")]
    assert "return_data" not in described


def test_hints_come_before_docstrings_and_both_may_be_missing() -> None:
    def function(a, b: OnlyForTypeCheckers, c: int = None, d="x", e: Later | None = None, f: bool = math):  # type: ignore[no-untyped-def,assignment]  # noqa: RUF013
        """
        :param a: an array
        :type a: list of int, optional
        :param float b: unresolvable above
        """

    action = FunctionAction(function)
    assert [p["type"] for p in action.description["parameters"]] == ["Array", "FLOAT", "NUMBER", "STRING", "STRING", "BOOLEAN"]
    schema = action.schema()
    assert schema["properties"] == {
        "a": {"type": "array", "items": {}, "description": "an array"},
        "b": {"type": "number", "description": "unresolvable above"},
        "c": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "d": {"default": "x"},
        "e": {"anyOf": [{"$ref": "#/$defs/Later"}, {"type": "null"}], "default": None},
        "f": {"type": "boolean"},
    }
    assert schema["required"] == ["a", "b"]
    assert list(schema["$defs"]) == ["Later"]


@attrs.define
class Later:
    x: int


def test_hints_may_name_what_is_defined_after_the_class() -> None:
    class Forward(BaseAction):
        def run(self, later: AfterThat) -> int:  # type: ignore[name-defined]  # noqa: F821
            return int(later.x + 1)

    globals()["AfterThat"] = Later
    try:
        assert text_of(Forward()({"later": {"x": 1}})) == "2"
    finally:
        del globals()["AfterThat"]


def test_a_description_may_be_replaced_in_part() -> None:
    parameters = [
        {"name": "text", "type": "STRING", "description": "le texte"},
        {"name": "extra", "type": "FLOAT"},
        {"name": "odd"},
    ]
    action = Bold({"name": "gras", "parameters": parameters, "required": ["text", "extra"]})
    assert action.name == "gras"
    assert action.description["description"] == "Make text bold."
    assert action.schema()["properties"] == {
        "text": {"type": "string", "description": "le texte"},
        "extra": {"type": "number"},
        "odd": {"type": "string"},
    }
    assert action.schema()["required"] == ["text", "extra"]
    assert Bold().name == "Bold"


def test_what_is_returned_may_be_changed_without_harm() -> None:
    action = Bold()
    action.schema()["properties"].clear()
    action.description["parameters"].clear()
    assert list(Bold().schema()["properties"]) == ["text", "times", "marks"]


def test_a_description_that_requires_unlisted_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'Bold' requires parameters that it does not list: \['size'\]"):
        Bold({"required": ["size"]})


# Classes ---------------------------------------------------------------------------------------------------------


def test_run_and_other_apis_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match=r"Both has 'run' and other tool APIs \(other\)"):

        class Both(BaseAction):
            @tool_api
            def run(self) -> None: ...

            @tool_api
            def other(self) -> None: ...

    with pytest.raises(ConfigurationError, match="'run' and other"):

        class Grown(Bold):
            @tool_api
            def other(self) -> None: ...


def test_an_undecorated_run_beside_apis_is_a_helper() -> None:
    class Toolkit(BaseAction):
        @tool_api
        def api(self) -> str:
            return self.run()

        def run(self) -> str:
            return "helped"

    assert text_of(Toolkit()({}, "api")) == "helped"


def test_api_names_may_not_hide_what_actions_have() -> None:
    with pytest.raises(ConfigurationError, match="cannot have a tool API 'schema'"):

        class Taken(BaseAction):
            @tool_api
            def schema(self) -> str:  # type: ignore[override]
                return ""


def test_subclasses_inherit_override_and_drop_apis() -> None:
    class Same(Bold):
        pass

    class Less(Arithmetic):
        """Only sums"""

        split = None  # type: ignore[assignment]

        def add(self, a: int, b: int = 10) -> int:
            """Add ten."""
            return int(super().add(a, b))

    assert text_of(Same()({"text": "x"})) == "*x*"
    assert Same().description == {**Bold().description, "name": "Same"}
    assert [api["description"] for api in Less().description["api_list"]] == ["Add ten."]
    assert text_of(Less()({"a": 1}, "add")) == "11"


def test_an_action_without_apis_can_be_made_but_not_called() -> None:
    class Nothing(BaseAction):
        """Nothing"""

    assert Nothing().description == {
        "name": "Nothing",
        "description": "Nothing",
        "parameters": [],
        "required": [],
        **ASK_FOR_JSON,
    }
    result = Nothing()({})
    assert (result.state, result.errmsg) == (ActionStatusCode.API_ERROR, "invalid API: run (known: none)")


# Calling ---------------------------------------------------------------------------------------------------------


def test_calling_gives_parts_and_what_was_asked() -> None:
    result = Bold()({"text": "x", "times": "2"})
    assert result == ActionReturn(
        args={"text": "x", "times": "2"},
        type="Bold",
        result=[{"type": "text", "content": "**x**"}],
        state=ActionStatusCode.SUCCESS,
    )
    assert text_of(Arithmetic()({"a": 7, "b": 2}, "split")) == '{"quotient": 3, "rest": 1}'


async def test_the_mixin_makes_calling_awaitable_whatever_the_method() -> None:
    class AsyncArithmetic(AsyncActionMixin, Arithmetic):
        pass

    action = AsyncArithmetic()
    assert text_of(await action({"a": 1}, "add")) == "2"
    assert text_of(await action({"a": 7, "b": 2}, "split")) == '{"quotient": 3, "rest": 1}'


@pytest.mark.parametrize(
    ("inputs", "name", "errmsg"),
    [
        ({"b": 1}, "add", "argument 'a' is missing"),
        ({"a": 1, "z": 1}, "add", "argument 'z' is unknown (known: 'a', 'b')"),
        ({"a": "one"}, "add", "argument 'a' should be an integer, got 'one'"),
        ("[1]", "add", "the arguments should be a JSON object that maps parameter names to values, got [1]"),
    ],
)
def test_arguments_that_do_not_fit_are_reported(inputs: Any, name: str, errmsg: str) -> None:
    result = Arithmetic()(inputs, name)
    assert result == ActionReturn(
        args={"inputs": inputs, "name": name}, type="Arithmetic", errmsg=errmsg, state=ActionStatusCode.ARGS_ERROR
    )


def test_refusals_of_classes_name_the_argument() -> None:
    @attrs.define
    class Even:
        n: int = attrs.field()

        @n.validator
        def _even(self, attribute: Any, value: int) -> None:
            if value % 2:
                raise ValueError(f"{value} is odd")

    def function(even):  # type: ignore[no-untyped-def]
        return even.n

    function.__annotations__["even"] = Even
    action = FunctionAction(function)
    assert text_of(action({"even": {"n": 2}})) == "2"
    assert action({"even": {"n": 3}}).errmsg == "argument 'even' cannot be {'n': 3}: 3 is odd"


def test_unknown_apis_are_reported() -> None:
    result = Arithmetic()({}, "mul")
    assert (result.state, result.errmsg) == (ActionStatusCode.API_ERROR, "invalid API: mul (known: add, split)")
    assert Arithmetic()({}, "helper").state == ActionStatusCode.API_ERROR


@pytest.mark.parametrize(
    ("raised", "errmsg"),
    [
        (ValueError("too big"), "ValueError: too big"),
        (KeyError(), "KeyError"),
        (ActionArgumentsError("in our words"), "in our words"),
        (SystemExit(1), "SystemExit: 1"),
        (StopIteration(), "StopIteration"),
        (TimeoutError("its own"), "TimeoutError: its own"),
        (asyncio.TimeoutError(), "TimeoutError"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("timeout", [None, 60])
@pytest.mark.parametrize("asynchronous_action", [False, True])
@pytest.mark.parametrize("asynchronous_caller", [False, True])
def test_errors_never_escape(
    raised: BaseException, errmsg: str, timeout: float | None, asynchronous_action: bool, asynchronous_caller: bool
) -> None:
    class Sync(BaseAction):
        def run(self) -> None:
            raise raised

    class Async(BaseAction):
        async def run(self) -> None:
            raise raised

    mixin = (AsyncActionMixin,) if asynchronous_caller else ()
    action = type("Failing", (*mixin, Async if asynchronous_action else Sync), {})(timeout=timeout)
    result = asyncio.run(action({})) if asynchronous_caller else action({})
    assert (result.state, result.type, result.args) == (ActionStatusCode.API_ERROR, "Failing", {})
    if isinstance(raised, StopIteration):  # Python itself turns it into a RuntimeError on its way out of a coroutine
        assert "StopIteration" in result.errmsg
    else:
        assert result.errmsg == errmsg


def test_interrupts_of_the_user_do_escape() -> None:
    class Interrupted(BaseAction):
        def run(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted()({})


def test_a_session_is_given_but_not_shown() -> None:
    action = Whoami()
    assert list(action.schema()["properties"]) == ["greeting"]
    assert text_of(action({})) == "hi nobody None"
    assert text_of(action({"session_id": "own"})) == "hi own None"
    assert text_of(action({"session_id": "forged"}, session_id="real")) == "hi real real"
    assert text_of(action({}, session_id=0)) == "hi 0 0"


def test_a_tool_without_session_takes_none() -> None:
    assert Bold()({"text": "x", "session_id": 1}).errmsg == "argument 'session_id' is unknown (known: 'text', 'times', 'marks')"


def test_open_and_positional_parameters() -> None:
    def function(a: int, /, *rest: int, key: int = 0, **others: int) -> Any:
        return [a, rest, key, others]

    assert text_of(FunctionAction(function)({"a": 1, "b": 2, "key": 3})) == '[1, [], 3, {"b": 2}]'
    assert text_of(FunctionAction(math.sqrt)({"x": 4})) == "2.0"


class AsyncCallable:
    unrelated: str

    async def __call__(self, a: int) -> int:
        return a + 1


def double(a: int, factor: int = 2) -> int:
    """Double a number"""
    return a * factor


def test_functions_of_all_kinds() -> None:
    partial = FunctionAction(functools.partial(double, factor=3))
    assert text_of(FunctionAction(AsyncCallable())({"a": "1"})) == "2"
    assert text_of(FunctionAction(Arithmetic().add)({"a": 1, "b": 2})) == "3"
    assert text_of(partial({"a": 2})) == "6"
    assert partial.description == {
        **FunctionAction(double).description,
        "parameters": [{"name": "a", "type": "NUMBER", "description": ""}],
    }
    assert FunctionAction(double).description["description"] == "Double a number"
    assert FunctionAction(AsyncCallable()).name == "AsyncCallable"


# Time limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous_caller", [False, True])
def test_a_plain_function_is_given_up_at_its_limit(asynchronous_caller: bool) -> None:
    release, ended = threading.Event(), threading.Event()

    class Slow(BaseAction):
        def run(self) -> None:
            release.wait(30)
            ended.set()

    class AsyncSlow(AsyncActionMixin, Slow):
        pass

    result = asyncio.run(AsyncSlow(timeout=0.05)({})) if asynchronous_caller else Slow(timeout=0.05)({})
    assert (result.state, result.errmsg) == (ActionStatusCode.API_ERROR, "TimeoutError: no result within 0.05 seconds")
    assert not ended.is_set()
    release.set()
    assert ended.wait(30)


@pytest.mark.parametrize("asynchronous_caller", [False, True])
def test_a_coroutine_is_cancelled_at_its_limit_and_cleans_up(asynchronous_caller: bool) -> None:
    events: list[Any] = []

    class Slow(BaseAction):
        timeout = 0.05

        async def run(self, session_id: Any = None) -> None:
            events.append((session_id, current_session.get()))
            try:
                await asyncio.sleep(30)
            finally:
                events.append("cleaned up")

    class AsyncSlow(AsyncActionMixin, Slow):
        pass

    result = asyncio.run(AsyncSlow()({}, session_id=7)) if asynchronous_caller else Slow()({}, session_id=7)
    assert result.errmsg == "TimeoutError: no result within 0.05 seconds"
    assert events == [(7, 7), "cleaned up"]


async def test_cancelling_the_caller_cancels_the_action() -> None:
    started, events = asyncio.Event(), []

    class Slow(AsyncActionMixin, BaseAction):
        async def run(self) -> None:
            try:
                started.set()
                await asyncio.sleep(30)
            finally:
                events.append("cleaned up")

    for timeout in (None, 60):
        started.clear()
        task = asyncio.create_task(Slow(timeout=timeout)({}))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert events == ["cleaned up"] * 2


@pytest.mark.parametrize(
    "function", [lambda: threading.current_thread().daemon, lambda: current_session.get()], ids=["daemon", "session"]
)
def test_limited_functions_run_in_a_thread_that_does_not_keep_the_program(function: Any) -> None:
    action = FunctionAction(function, {"name": "limited"}, timeout=60)
    assert action.name == "limited"
    assert text_of(action({}, session_id="True")) == "True"


# Parsers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", ['{"text": "x"}', '```json\n{"text": "x"}\n```', ' ```\n{"text": "x"}``` ', {"text": "x"}])
def test_json_parser(inputs: Any) -> None:
    assert JsonParser(Bold()).parse_inputs(inputs) == {"text": "x"}


@pytest.mark.parametrize(("inputs", "error"), [("{'text'", "not valid JSON"), ("[" * 10**5, "not valid JSON"), (3, "got 3")])
def test_json_parser_refuses_other_text(inputs: Any, error: str) -> None:
    with pytest.raises(ParseError, match=error) as caught:
        JsonParser(Bold()).parse_inputs(inputs)
    assert caught.value.err_msg == str(caught.value)


def test_json_parser_takes_no_text_as_no_arguments() -> None:
    assert JsonParser(Bold()).parse_inputs("") == {}


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [('("x", 2)', {"text": "x", "times": 2}), (("x",), {"text": "x"}), ("'x'", {"text": "x"}), ("['x']", {"text": ["x"]})],
)
def test_tuple_parser(inputs: Any, expected: dict[str, Any]) -> None:
    assert TupleParser(Bold()).parse_inputs(inputs) == expected


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ("f(x)", "not a tuple"),
        (3, "not a tuple"),
        ("()", r"takes 1 to 3 arguments \(text, times, marks\), got 0"),
        ((1,) * 4, "got 4"),
    ],
)
def test_tuple_parser_refuses(inputs: Any, error: str) -> None:
    with pytest.raises(ParseError, match=error):
        TupleParser(Bold()).parse_inputs(inputs)


def test_tuple_parser_of_fixed_length() -> None:
    with pytest.raises(ParseError, match="takes 2 arguments"):
        TupleParser(Arithmetic()).parse_inputs((1,), "split")


def test_base_parser_takes_text_for_the_first_parameter() -> None:
    parser = BaseParser(Bold())
    assert parser.parse_inputs("x") == {"text": "x"}
    assert parser.parse_inputs({"times": 1}) == {"times": 1}
    assert parser.parse_inputs({"other": 1}) == {"text": {"other": 1}}
    with pytest.raises(ParseError, match="takes no arguments, got 'x'"):
        BaseParser(FunctionAction(lambda: None)).parse_inputs("x")


def test_a_parser_of_ones_own() -> None:
    class Shouting(JsonParser):
        def parse_inputs(self, inputs: Any, name: str = "run") -> dict[str, Any]:
            return {"text": inputs[0]}

        def parse_outputs(self, outputs: Any) -> list[dict[str, Any]]:
            return [{"type": "text", "content": outputs.upper()}]

    assert text_of(Bold(parser=Shouting)(["x"])) == "*X*"
    assert Bold(parser=Shouting)([]).state == ActionStatusCode.ARGS_ERROR


@pytest.mark.parametrize(
    ("output", "parts"),
    [
        ("text", [{"type": "text", "content": "text"}]),
        (3.5, [{"type": "text", "content": "3.5"}]),
        (None, [{"type": "text", "content": "None"}]),
        (True, [{"type": "text", "content": "True"}]),
        ({"a": ["é", None]}, [{"type": "text", "content": '{"a": ["é", null]}'}]),
        ([], [{"type": "text", "content": "[]"}]),
        (({1}, 2), [{"type": "text", "content": "[[1], 2]"}]),
        (Later(1), [{"type": "text", "content": '{"x": 1}'}]),
        ([{"type": "person", "name": "Ada"}], [{"type": "text", "content": '[{"type": "person", "name": "Ada"}]'}]),
        (sys.maxsize, [{"type": "text", "content": str(sys.maxsize)}]),
        (
            [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "data:x"}},
                {"type": "image", "content": "b.png"},
                {"type": "input_audio", "input_audio": {"data": ""}},
            ],
            [
                {"type": "text", "content": "a"},
                {"type": "image", "content": "data:x"},
                {"type": "image", "content": "b.png"},
                {"type": "input_audio", "content": {"data": ""}},
            ],
        ),
    ],
    ids=repr,
)
def test_outputs_become_parts(output: Any, parts: list[dict[str, Any]]) -> None:
    def function():  # type: ignore[no-untyped-def]
        return output

    assert FunctionAction(function)({}).result == parts


def test_parts_become_content_for_models() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "content": "a"},
        {"type": "image", "content": "data:x"},
        {"type": "input_audio", "content": {"data": ""}},
    ]
    assert content_parts(parts) == [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "data:x"}},
        {"type": "input_audio", "input_audio": {"data": ""}},
    ]
    assert FunctionAction(lambda: content_parts(parts))({}).result == parts


def test_an_action_return_of_ones_own_is_completed_but_not_changed() -> None:
    own = ActionReturn(errmsg="closed", state=ActionStatusCode.HTTP_ERROR, valid=ActionValidCode.CLOSED)
    action = FunctionAction(lambda a=0: own)
    result = action({"a": 1})
    assert result == attrs.evolve(own, args={"a": 1}, type="<lambda>")
    assert (own.args, own.type) == (None, None)
