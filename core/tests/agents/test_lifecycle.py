"""What a call does, the same in all four variants."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest

from lagent.agents import Agent, AsyncAgent, Sequential, StreamingAgent
from lagent.errors import ConfigurationError, HookError, OutputParseError, UnsupportedCapabilityError
from lagent.hooks import Hook, hookimpl, register_hook
from lagent.llms import BaseLLM, Capabilities
from lagent.memory import Memory
from lagent.prompts.parsers import StrParser
from lagent.schema import AgentMessage, AgentStatusCode, ModelChunk, ModelResponse, ParsedResponse, ParseStatus, ToolCall
from lagent_echo import AsyncEchoModel, EchoModel


class Recorder(Hook):
    """Writes down every event."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def before_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        self.events.append(("before_agent", [m.content for m in message]))

    def after_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        self.events.append(("after_agent", message.content))

    def before_action(self, executor: Any, message: Any, session_id: Any) -> None:
        self.events.append(("before_action", message.content.name))

    def after_action(self, executor: Any, message: Any, session_id: Any) -> None:
        self.events.append(("after_action", message.content.format_result()))

    def before_model(self, agent: Any, messages: Any, session_id: Any) -> None:
        self.events.append(("before_model", [m["content"] for m in messages]))

    def after_model(self, agent: Any, response: Any, session_id: Any) -> None:
        self.events.append(("after_model", response.content))

    def session_opened(self, agent: Any, session_id: Any) -> None:
        self.events.append(("session_opened", session_id))


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SCRIPTS = {
    "Agent": ["Hello, who is there?"],
    "Sequential": ["first answer", "second answer"],
    "ToolAgent": [[ToolCall("add", {"a": 1, "b": 2}, "c1"), ToolCall("add", {"a": 3, "b": 4}, "c2")], "three and seven"],
}


def build(variant: Any, base: str, hook: Hook) -> Any:
    model = variant.model(SCRIPTS[base])
    if base == "Agent":
        return variant.cls(base)(model, "Be kind.", name="a", hooks=[hook])
    if base == "Sequential":
        children = [variant.cls("Agent")(model, name=name, hooks=[hook]) for name in ("one", "two")]
        return variant.cls(base)(*children, name="s", hooks=[hook])
    agent = variant.cls(base)(model, [add], name="t", hooks=[hook], action_hooks=[hook])
    agent.agent.register_hook(hook)
    return agent


@pytest.mark.parametrize("base", SCRIPTS)
def test_all_variants_do_the_same(variants: list[Any], base: str) -> None:
    seen = []
    for variant in variants:
        hook = Recorder()
        agent = build(variant, base, hook)
        answer = variant.call(agent, "Hi", session_id="u")
        actions = sorted(hook.events[i] for i in range(len(hook.events)) if "action" in hook.events[i][0])
        events = [event for event in hook.events if "action" not in event[0]]
        seen.append((answer, agent.state_dict("u"), events, actions))
    assert seen[0][0].content
    assert seen == [seen[0]] * 4


def test_input_and_output_are_remembered_around_forward(variant: Any) -> None:
    seen: list[Any] = []

    class Spy(Agent):
        def _steps(self, message: Any, session_id: Any, kwargs: Any, emit: Any = None) -> Any:
            seen.append([m.content for m in self.memory.get_memory(session_id)])
            return (yield from super()._steps(message, session_id, kwargs, emit))

    agent = variant.mixed(Spy)(variant.model(["one", "two"]))
    variant.call(agent, "a", session_id=3)
    variant.call(agent, "b", session_id=3)
    assert seen == [["a"], ["a", "one", "b"]]
    assert [m.content for m in agent.memory.get_memory(3)] == ["a", "one", "b", "two"]
    assert agent.memory.get_memory(0) == []


def test_a_streaming_agent_yields_the_text_so_far_and_the_increment() -> None:
    messages = list(StreamingAgent(EchoModel(["a b c"]))("x"))
    texts = [m.content for m in messages]
    assert texts[-1] == texts[-2] == "a b c"
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert "".join(m.increment for m in messages) == "a b c"
    assert [m.stream_state for m in messages[:-1]] == [AgentStatusCode.STREAM_ING] * (len(messages) - 1)
    assert messages[-1].stream_state is AgentStatusCode.END


def test_streams_pass_through_every_level(variants: list[Any]) -> None:
    for variant in variants[2:]:
        tools = variant.cls("ToolAgent")(variant.model([[ToolCall("add", {"a": 1, "b": 1})], "it is two"]), [add], name="t")
        outer = variant.cls("Sequential")(
            variant.cls("Sequential")(tools), variant.cls("Agent")(variant.model(["bye now"]), name="b")
        )
        messages = variant.emitted(outer, "1+1?")
        steps = [(m.sender, m.stream_state) for m in messages]
        assert ("t", AgentStatusCode.PLUGIN_START) in steps
        assert ("ActionExecutor", AgentStatusCode.PLUGIN_RETURN) in steps
        assert steps.index(("t", AgentStatusCode.STREAM_ING)) > steps.index(("ActionExecutor", AgentStatusCode.PLUGIN_RETURN))
        assert [m.content for m in messages if m.sender == "b"][-1] == "bye now"
        assert messages[-1].stream_state is AgentStatusCode.END


class TestChangesDoNotReachMemory:
    def test_those_of_the_caller(self, variant: Any) -> None:
        agent = variant.cls("Agent")(variant.model(ModelResponse("text", extra={"k": [1]})))
        question = AgentMessage([{"type": "text", "text": "hello"}], extra_info={"a": {"b": 1}})
        answer = variant.call(agent, question)
        question.content[0]["text"] = "changed"
        question.extra_info["a"]["b"] = 2
        answer.content = "changed"
        answer.extra_info["k"].append(2)
        kept = agent.memory.get_memory(0)
        assert kept[0].content == [{"type": "text", "text": "hello"}]
        assert kept[0].extra_info == {"a": {"b": 1}}
        assert kept[1].content == "text"
        assert kept[1].extra_info["k"] == [1]

    def test_those_of_hooks_after_the_event(self, variant: Any) -> None:
        taken: list[AgentMessage] = []

        class Keeper(Hook):
            def before_agent(self, agent: Any, message: Any, session_id: Any) -> None:
                message[0].content += "!"
                taken.extend(message)

            def after_agent(self, agent: Any, message: Any, session_id: Any) -> None:
                message.content += "?"
                taken.append(message)

        question = AgentMessage("hi")
        agent = variant.cls("Agent")(variant.model(["yo"]), hooks=[Keeper()])
        answer = variant.call(agent, question)
        for message in taken:
            message.content = "later"
        assert question.content == "hi"
        assert answer.content == "later"
        assert [m.content for m in agent.memory.get_memory(0)] == ["hi!", "yo"]

    def test_those_of_forward(self, variant: Any) -> None:
        class Rude(Agent):
            def _steps(self, message: Any, session_id: Any, kwargs: Any, emit: Any = None) -> Any:
                raise AssertionError("forward is overridden")
                yield

        async def aforward(self: Any, message: AgentMessage, session_id: Any = 0) -> Any:
            message.content = "rude"
            return "ok"

        def forward(self: Any, message: AgentMessage, session_id: Any = 0) -> Any:
            message.content = "rude"
            return iter(["ok"]) if variant.streaming else "ok"

        async def agenerator(self: Any, message: AgentMessage, session_id: Any = 0) -> Any:
            message.content = "rude"
            yield "ok"

        chosen = (agenerator if variant.streaming else aforward) if variant.asynchronous else forward
        agent = type("Own", (variant.mixed(Rude),), {"forward": chosen})()
        question = AgentMessage("polite")
        assert variant.call(agent, question).content == "ok"
        assert question.content == "polite"
        assert [m.content for m in agent.memory.get_memory(0)] == ["polite", "ok"]


class TestOwnForward:
    def test_with_children_of_any_colour(self) -> None:
        class Parent(Agent):
            def __init__(self) -> None:
                super().__init__(name="parent")
                self.child = AsyncAgent(AsyncEchoModel(["from the loop"]), name="child")

            def forward(self, message: AgentMessage, session_id: Any = 0) -> AgentMessage:
                return asyncio.run(self.child(message, session_id=session_id))

        parent = Parent()
        assert parent("x", session_id="s").content == "from the loop"
        assert set(parent.state_dict("s")) == {"version", "memory", "child.memory"}

    def test_streams_in_the_style_of_lagent(self) -> None:
        class Own(StreamingAgent):
            def forward(self, *message: AgentMessage, session_id: Any = 0, **kwargs: Any) -> Any:
                yield AgentStatusCode.STREAM_ING, "half"
                yield AgentStatusCode.END, "whole"

        messages = list(Own(name="own")("x"))
        assert [(m.content, m.sender, m.stream_state) for m in messages] == [
            ("half", "own", AgentStatusCode.STREAM_ING),
            ("whole", "own", AgentStatusCode.END),
        ]

    def test_a_plain_one_does_not_block_the_loop_of_an_asynchronous_parent(self) -> None:
        inside = threading.Event()

        class Slow(Agent):
            def forward(self, message: AgentMessage, session_id: Any = 0) -> str:
                assert inside.wait(10)
                return "done"

        async def main() -> AgentMessage:
            from lagent.agents import AsyncSequential

            task = asyncio.ensure_future(AsyncSequential(Slow())("x"))
            await asyncio.sleep(0)
            inside.set()
            answer: AgentMessage = await task
            return answer

        assert asyncio.run(main()).content == "done"

    def test_can_call_super(self, variant: Any) -> None:
        class Louder(Agent):
            pass

        async def aforward(self: Any, *message: Any, session_id: Any = 0, **kw: Any) -> Any:
            return (await super(cls, self).forward(*message, session_id=session_id, **kw)).content.upper()

        def forward(self: Any, *message: Any, session_id: Any = 0, **kw: Any) -> Any:
            return super(cls, self).forward(*message, session_id=session_id, **kw).content.upper()

        async def astream(self: Any, *message: Any, session_id: Any = 0, **kw: Any) -> Any:
            async for item in super(cls, self).forward(*message, session_id=session_id, **kw):
                yield item.content.upper()

        def stream(self: Any, *message: Any, session_id: Any = 0, **kw: Any) -> Any:
            for item in super(cls, self).forward(*message, session_id=session_id, **kw):
                yield item.content.upper()

        chosen = {"": forward, "Async": aforward, "Streaming": stream, "AsyncStreaming": astream}[variant.name]
        cls = type("Louder", (variant.mixed(Louder),), {"forward": chosen})
        assert variant.call(cls(variant.model(["quiet"])), "x").content == "QUIET"


class TestComponentsOfTheOtherColour:
    def test_asynchronous_model_in_a_plain_agent(self) -> None:
        assert Agent(AsyncEchoModel(["x y"]))("q").content == "x y"
        assert list(StreamingAgent(AsyncEchoModel(["x y"]))("q"))[-1].content == "x y"

    async def test_plain_model_runs_in_a_thread(self) -> None:
        threads: set[int] = set()

        class Model(BaseLLM):
            def _complete(self, request: Any) -> str:
                threads.add(threading.get_ident())
                return "x"

        assert (await AsyncAgent(Model())("q")).content == "x"
        assert threading.get_ident() not in threads

    async def test_plain_agents_work_inside_a_running_loop(self) -> None:
        assert Agent(AsyncEchoModel(["x"]))("q").content == "x"

    def test_a_model_is_found_under_the_name_of_the_other_colour(self) -> None:
        from lagent.registry import register

        with register("llms", "only-plain", EchoModel), register("async_llms", "only-async", AsyncEchoModel):
            assert isinstance(AsyncAgent("only-plain").llm, EchoModel)
            assert isinstance(Agent("only-async").llm, AsyncEchoModel)

    async def test_hooks_and_functions_of_both_colours(self, variants: list[Any]) -> None:
        class Both(Hook):
            async def before_agent(self, agent: Any, message: Any, session_id: Any) -> Any:
                await asyncio.sleep(0)
                return [m.model_copy(update={"content": m.content + "a"}) for m in message]

        assert Agent(EchoModel(), hooks=[Both()])("x").content == "xa"
        assert (await AsyncAgent(AsyncEchoModel(), hooks=[Both()])("x")).content == "xa"


class TestModelsOfLagent05:
    def test_chat_and_stream(self) -> None:
        class Old:
            def chat(self, inputs: Any, session_ids: Any = None, **gen_params: Any) -> str:
                return f"{session_ids} {inputs[-1]['content']} {sorted(gen_params)}"

            def stream_chat(self, inputs: Any, **gen_params: Any) -> Any:
                text = ""
                for piece in ("a", "b"):
                    text += piece
                    yield 1, text, None
                yield 0, text + str(gen_params["session_id"]), None

        assert Agent(Old())("q", session_id=7, top_k=1).content == "7 q ['top_k']"
        assert [m.content for m in StreamingAgent(Old())("q", session_id=7)] == ["a", "ab", "ab7", "ab7"]

    def test_a_subclass_of_the_base_that_generates(self) -> None:
        class Old(BaseLLM):
            def generate(self, inputs: Any, **gen_params: Any) -> str:
                return f"{inputs} {self.update_gen_params(**gen_params)['temperature']}"

        assert Agent(Old("p", temperature=0.5), "sys")("q").content == "sys\nq 0.5"

    async def test_an_asynchronous_one(self) -> None:
        class Old:
            async def chat(self, inputs: Any, session_id: Any, **gen_params: Any) -> str:
                return f"{session_id}"

        assert (await AsyncAgent(Old())("q", session_id="u")).content == "u"

    def test_a_callable_object_without_signature(self) -> None:
        class Odd:
            chat = staticmethod(max)

        assert Agent(Odd())("q").content == "{'role': 'user', 'content': 'q'}"


class Strict(StrParser):
    """Reads 'ok', knows a schema, and complains about anything else."""

    output_schema = {"type": "string"}  # type: ignore[assignment]

    def format_instruction(self) -> str:
        return "Say ok."

    def parse_response(self, data: str) -> ParsedResponse:
        if data == "boom":
            raise ValueError("cannot even read it")
        if data != "ok":
            return ParsedResponse(status=ParseStatus.ERROR, error=f"say ok, not {data}")
        return ParsedResponse(value=data)


class TestParsing:
    def test_result_goes_beside_the_raw_text(self, variant: Any) -> None:
        answer = variant.call(variant.cls("Agent")(variant.model(["ok"]), output_format=Strict()), "x")
        assert (answer.content, answer.formatted.value) == ("ok", "ok")

    @pytest.mark.parametrize("bad", ["no", "boom"])
    def test_keep(self, variant: Any, bad: str) -> None:
        answer = variant.call(variant.cls("Agent")(variant.model([bad]), output_format=Strict()), "x")
        assert answer.content == bad
        assert answer.extra_info["parse_error"] in ("say ok, not no", "cannot even read it")

    @pytest.mark.parametrize("bad", ["no", "boom"])
    def test_raise(self, variant: Any, bad: str) -> None:
        agent = variant.cls("Agent")(variant.model([bad]), output_format=Strict(), on_parse_error="raise")
        with pytest.raises(OutputParseError) as caught:
            variant.call(agent, "x")
        assert caught.value.raw == bad
        assert agent.memory.get_memory(0) == []

    def test_retry_asks_again_with_the_error_and_counts(self, variant: Any) -> None:
        model = variant.model(["no", "boom", "ok"])
        agent = variant.cls("Agent")(model, output_format=Strict(), on_parse_error="retry")
        answer = variant.call(agent, "x")
        assert (answer.content, answer.extra_info["parse_retries"]) == ("ok", 2)
        assert "say ok, not no" in model.requests[1].messages[-1]["content"]
        assert model.requests[1].messages[-2] == {"role": "assistant", "content": "no"}
        assert [m.content for m in agent.memory.get_memory(0)] == ["x", "ok"]

    def test_retry_is_bounded(self, variant: Any) -> None:
        model = variant.model(["no"] * 5)
        answer = variant.call(variant.cls("Agent")(model, output_format=Strict(), on_parse_error="retry", parse_retries=1), "x")
        assert len(model.requests) == 2
        assert answer.extra_info["parse_error"] == "say ok, not no"

    def test_the_schema_goes_to_models_that_take_it_and_into_the_prompt_of_others(self) -> None:
        can = EchoModel(["ok"], capabilities=Capabilities(json_schema=True))
        cannot = EchoModel(["ok"], capabilities=Capabilities())
        Agent(can, "Be brief.", output_format=Strict())("x")
        Agent(cannot, "Be brief.", output_format=Strict())("x")
        assert can.requests[0].output_schema == {"type": "string"}
        assert can.requests[0].messages[0]["content"] == "Be brief."
        assert cannot.requests[0].output_schema is None
        assert cannot.requests[0].messages[0]["content"] == "Be brief.\n\nSay ok."

    @pytest.mark.parametrize(
        "template", [None, "Say ok. Now.", [{"role": "system", "content": "a"}], {"role": "system", "content": "a"}]
    )
    def test_instruction_is_given_once(self, template: Any) -> None:
        model = EchoModel(["ok"], capabilities=Capabilities())
        Agent(model, template, output_format=Strict())("x")
        system = [m["content"] for m in model.requests[0].messages if m["role"] == "system"]
        assert "\n".join(system).count("Say ok.") == 1


class TestNativeToolCallsBesideAParser:
    def test_they_reach_the_formatted_result(self, variant: Any) -> None:
        call = ToolCall("add", {"a": 1, "b": 2}, "c1")
        for answer in ([call], ["ok", call]):
            agent = variant.cls("Agent")(variant.model([answer]), output_format=Strict(), on_parse_error="raise")
            assert variant.call(agent, "x").formatted.tool_calls == [call]
        plain = variant.cls("Agent")(variant.model([["text", call]]), output_format=StrParser())
        assert variant.call(plain, "x").formatted.tool_calls == [call]


class TestAutomaticOutputFormat:
    def test_the_parser_is_told_the_template_of_the_model(self) -> None:
        from lagent.registry import register

        class Told(StrParser):
            def __init__(self, chat_template: str, extra: int = 0) -> None:
                super().__init__()
                self.told = chat_template, extra

        class Model(EchoModel):
            chat_template = "{{ messages }}"  # type: ignore[assignment]

        with register("parsers", "auto", Told):
            assert Agent(Model(), output_format="auto").output_format.told == ("{{ messages }}", 0)
            assert Agent(Model(), output_format={"type": "auto", "extra": 1}).output_format.told == ("{{ messages }}", 1)
            mine = {"type": "auto", "chat_template": "mine"}
            assert Agent(EchoModel(), output_format=mine).output_format.told == ("mine", 0)
            with pytest.raises(ConfigurationError, match="which EchoModel does not tell: name the dialect"):
                Agent(EchoModel(), output_format="auto")


class TestToolsWithoutNativeSupport:
    def test_a_dialect_describes_and_reads_them(self) -> None:
        class Dialect(StrParser):
            def format_tools(self, tools: Any) -> str:
                return "tools: " + ", ".join(tool["function"]["name"] for tool in tools)

            def parse_response(self, data: str) -> ParsedResponse:
                calls = [ToolCall("add", {"a": 1, "b": 2})] if data.startswith("call") else []
                return ParsedResponse(content="" if calls else data, tool_calls=calls)

        from lagent.agents import ToolAgent

        model = EchoModel(["call add", "three"], capabilities=Capabilities())
        agent = ToolAgent(model, [add], output_format=Dialect())
        assert agent("1+2").content == "three"
        first, second = model.requests
        assert first.messages[0] == {"role": "system", "content": "tools: add"}
        assert first.tools is None
        assert second.messages[: len(first.messages)] == first.messages
        assert second.messages[2] == {"role": "assistant", "content": "call add"}
        assert second.messages[3]["content"] == "3"

    def test_refused_before_the_call_if_nobody_can(self) -> None:
        from lagent.agents import ToolAgent

        model = EchoModel(["x"], capabilities=Capabilities())
        with pytest.raises(UnsupportedCapabilityError, match="output_format"):
            ToolAgent(model, [add])("x")
        assert model.requests == []


class TestHooks:
    def test_order_and_replacement(self, variant: Any) -> None:
        class Suffix(Hook):
            def __init__(self, text: str) -> None:
                self.text = text

            def before_agent(self, agent: Any, message: Any, session_id: Any) -> Any:
                return message[0].model_copy(update={"content": message[0].content + self.text})

            def after_agent(self, agent: Any, message: Any, session_id: Any) -> Any:
                return message.model_copy(update={"content": message.content + self.text.upper()})

        agent = variant.cls("Agent")(variant.model(), hooks=[Suffix("a"), Suffix("b")])
        handle = agent.register_hook(Suffix("c"))
        with_global = register_hook(Suffix("g"))
        try:
            assert variant.call(agent, "x").content == "xgabcGABC"
        finally:
            with_global.remove()
        handle.remove()
        handle.remove()
        assert variant.call(agent, "x", session_id=2).content == "xabAB"

    def test_marked_functions_take_what_they_name(self) -> None:
        class Plugin:
            @hookimpl
            def before_model(self, messages: Any) -> Any:
                return [*messages, {"role": "user", "content": "now"}]

            @hookimpl
            def after_model(self, session_id: Any, response: Any) -> Any:
                return ModelResponse(f"{response.content} {session_id}")

        assert Agent(EchoModel(), hooks=[Plugin()])("x", session_id=4).content == "now 4"

    def test_stream_chunks(self) -> None:
        class Shout(Hook):
            def stream_chunk(self, agent: Any, message: Any, session_id: Any) -> Any:
                return message.model_copy(update={"content": message.content.upper()})

        messages = list(StreamingAgent(EchoModel(["a b"]), hooks=[Shout()])("x"))
        assert [m.content for m in messages[:-1]][-1] == "A B"
        assert messages[-1].content == "a b"

    def test_an_error_names_the_hook_and_the_event(self, variant: Any) -> None:
        class Broken(Hook):
            def after_agent(self, agent: Any, message: Any, session_id: Any) -> None:
                raise ZeroDivisionError("oops")

        agent = variant.cls("Agent")(variant.model(["x"]), hooks=[Broken()])
        with pytest.raises(HookError, match=r"hook Broken failed in after_agent: ZeroDivisionError\('oops'\)") as caught:
            variant.call(agent, "q")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert agent.memory.get_memory(0) == []

    def test_errors_are_told_after_the_memory_is_as_before(self, variant: Any) -> None:
        seen: list[Any] = []

        class Watch(Hook):
            def agent_error(self, agent: Any, error: Any, session_id: Any) -> None:
                seen.append((type(error), session_id, agent.memory.get_memory(session_id)))

        agent = variant.cls("Agent")(variant.model([RuntimeError]), hooks=[Watch()])
        with pytest.raises(RuntimeError):
            variant.call(agent, "q", session_id="s")
        assert seen == [(RuntimeError, "s", [])]

    @pytest.mark.parametrize(
        ("hook", "message"),
        [
            (object(), "no method named after an event"),
            (type("Typo", (), {"before_agnt": hookimpl(lambda self, agent: None)})(), "before_agnt"),
            (type("Args", (), {"before_agent": hookimpl(lambda self, agent, nothing: None)})(), "nothing"),
            (type("Wrap", (), {"before_agent": hookimpl(wrapper=True)(lambda self, agent: (yield))})(), "wrapper"),
        ],
    )
    def test_what_is_no_hook_is_refused_and_leaves_nothing(self, hook: Any, message: str) -> None:
        agent = Agent(EchoModel(["x"]))
        with pytest.raises(ConfigurationError, match=message):
            agent.register_hook(hook)
        assert agent._hooks.values() == []
        assert agent("q").content == "x"


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"template": "a", "system_prompt": "b"}, "two names for one thing"),
            ({"on_parse_error": "ignore"}, "on_parse_error must be one of keep, raise, retry, not 'ignore'"),
            ({"on_close": "x"}, "on_close"),
            ({"on_busy": "x"}, "on_busy must be 'wait' or 'reject'"),
            ({"max_sessions": 0}, "max_sessions must be at least 1"),
            ({"idle_seconds": 0}, "idle_seconds must be above 0"),
            ({"memory": Memory()}, "pass the class"),
            ({"memory": {"type": dict}}, "neither a Memory nor a MemoryStore"),
        ],
    )
    def test_refused_with_the_value_and_the_cure(self, arguments: Any, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            Agent(EchoModel(), **arguments)

    def test_without_a_model(self, variant: Any) -> None:
        with pytest.raises(ConfigurationError, match="has no model: pass llm="):
            variant.call(variant.cls("Agent")(), "x")

    def test_without_memory_an_agent_sees_only_its_input(self, variant: Any) -> None:
        model = variant.model(["a", "b"])
        agent = variant.cls("Agent")(model, memory=None)
        variant.call(agent, "one")
        variant.call(agent, "two")
        assert [m["content"] for m in model.requests[1].messages] == ["two"]
        assert agent.state_dict() == {"version": 1}

    def test_reasoning_and_usage_are_told(self, variant: Any) -> None:
        answer = variant.call(variant.cls("Agent")(variant.model(ModelResponse("a b", reasoning="hm"))), "x")
        assert answer.extra_info["reasoning"] == "hm"
        assert answer.extra_info["usage"]["completion_tokens"] == 3

    def test_a_stream_tells_reasoning_as_it_comes(self) -> None:
        class Thinker(BaseLLM):
            def _stream(self, request: Any) -> Any:
                yield ModelChunk(reasoning="first ")
                yield ModelChunk(reasoning="then")
                yield ModelChunk("so")

        messages = list(StreamingAgent(Thinker())("x"))
        assert [m.extra_info["reasoning"] for m in messages[:2]] == ["first ", "then"]
        assert messages[-1].extra_info["reasoning"] == "first then"

    def test_prompt_templates_and_exit_at(self) -> None:
        from lagent.prompts import PromptTemplate

        template = PromptTemplate("You are {who}.")
        template.format(who="me")
        model = EchoModel()
        Agent(model, template)("x")
        assert model.requests[0].messages[0]["content"] == "You are me."


class TestSequential:
    def test_exit_at(self, variant: Any) -> None:
        def chain() -> Any:
            names = "abc"
            return variant.cls("Sequential")(
                {n: variant.cls("Agent")(variant.model([f"{n}{i}" for i in range(3)]), name=n) for n in names}
            )

        assert variant.call(chain(), "x").content == "c0"
        assert variant.call(chain(), "x", exit_at=0).content == "a0"
        assert variant.call(chain(), "x", exit_at=4).content == "b1"
        with pytest.raises(ConfigurationError, match="exit_at"):
            variant.call(chain(), "x", exit_at=-1)

    def test_forms(self) -> None:
        a, b = Agent(name="a"), Agent(name="b")
        for made in (Sequential(a, b), Sequential([a, b]), Sequential((a, b)), Sequential(x for x in (a, b))):
            assert [made[0], made[-1], made["1"], len(made)] == [a, b, b, 2]
        for made in (Sequential({"p": a, "q": b}), Sequential(("p", a), ("q", b)), Sequential([("p", a), ("q", b)])):
            assert [made["p"], made[1]] == [a, b]
        made = Sequential(agents=["agent", {"type": "tools", "llm": "echo", "actions": ["calculator"], "name": "t"}])
        assert [type(child).__name__ for child in made.children()] == ["Agent", "ToolAgent"]
        assert made[1]("x").sender == "t"
        for wrong in ((), ([],), (a, 3)):
            with pytest.raises(ConfigurationError):
                Sequential(*wrong)
