"""Tool calls of a model whose chat template knows none."""

import json
from typing import Any

import pytest

from lagent.errors import ModelConfigurationError
from lagent.schema import ModelResponse, ResponseBuilder
from lagent_llamacpp import AsyncLlamaCppModel, LlamaCppModel


def tool(name: str, description: str, /, *examples: dict[str, Any], **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": description, "parameters": parameters, "examples": list(examples)}
    return {"type": "function", "function": function}


GREET = tool(
    "greet",
    "Greets a person.",
    {"question": "Say hello to Bob.", "arguments": {"name": "Bob"}, "result": "done", "answer": "I have greeted Bob."},
    {"question": "Greet Maria from me.", "arguments": {"name": "Maria"}, "result": "done", "answer": "I have greeted Maria."},
    name={"type": "string"},
)
TIMER = tool(
    "timer",
    "Sets a timer.",
    {"question": "Set a timer for 5 minutes.", "arguments": {"minutes": 5}, "result": "12:05", "answer": "It rings at 12:05."},
    {"question": "Wake me in 20 minutes.", "arguments": {"minutes": 20}, "result": "09:40", "answer": "It rings at 09:40."},
    minutes={"type": "integer"},
)


def ask(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def after(messages: list[dict[str, Any]], response: ModelResponse, result: str) -> list[dict[str, Any]]:
    """The conversation with the call and its result."""
    call = response.tool_calls[0]
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return [
        *messages,
        {
            "role": "assistant",
            "content": str(response),
            "tool_calls": [{"id": call.id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call.id, "content": result},
    ]


def test_call_and_answer(llm: LlamaCppModel) -> None:
    messages = ask("Set a timer for 35 minutes.")
    called = llm.chat(messages, tools=[TIMER])
    assert called.finish_reason == "tool_calls"
    assert [(call.name, call.arguments) for call in called.tool_calls] == [("timer", {"minutes": 35})]
    assert json.loads(called) == {"name": "timer", "arguments": {"minutes": 35}}
    answered = llm.chat(after(messages, called, "17:15"), tools=[TIMER])
    assert answered.tool_calls == []
    assert "17:15" in answered
    assert answered == answered.strip()


def test_streaming_gives_the_same(llm: LlamaCppModel) -> None:
    builder = ResponseBuilder()
    chunks = [builder.add(chunk) for chunk in llm.stream_chat(ask("Wake me in 45 minutes."), tools=[TIMER])]
    whole = llm.chat(ask("Wake me in 45 minutes."), tools=[TIMER])
    assert builder.response().content == whole
    assert builder.response().tool_calls[0].arguments == whole.tool_calls[0].arguments
    assert sum(chunk.finish_reason is not None for chunk in chunks) == 1


@pytest.mark.engine
async def test_asynchronous(async_llm: AsyncLlamaCppModel) -> None:
    called = await async_llm.chat(ask("Wake me in 45 minutes."), tools=[TIMER, GREET])
    assert called.tool_calls[0].name == "timer"


@pytest.mark.parametrize(("question", "name"), [("Wake me in 45 minutes.", "timer"), ("Please say hello to Peter.", "greet")])
def test_the_tool_that_fits_is_chosen(llm: LlamaCppModel, question: str, name: str) -> None:
    assert [call.name for call in llm.chat(ask(question), tools=[TIMER, GREET]).tool_calls] == [name]


def test_no_tool_where_none_fits(llm: LlamaCppModel) -> None:
    response = llm.chat(ask("Who painted the Mona Lisa?"), tools=[TIMER], max_new_tokens=8)
    assert response.tool_calls == []
    assert response.content


def test_tool_choice(llm: LlamaCppModel) -> None:
    assert llm.chat(ask("Hello!"), tools=[TIMER], tool_choice="required").tool_calls
    named = {"type": "function", "function": {"name": "greet"}}
    assert llm.chat(ask("Wake me in 45 minutes."), tools=[TIMER, GREET], tool_choice=named).tool_calls[0].name == "greet"
    assert llm.chat(ask("Wake me in 45 minutes."), tools=[TIMER], tool_choice="none", max_new_tokens=8).tool_calls == []


@pytest.mark.parametrize("wanted", ["always", {"type": "function", "function": {"name": "sing"}}, {}])
def test_a_tool_choice_that_is_none(llm: LlamaCppModel, wanted: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="tool_choice"):
        llm.chat(ask("Hello!"), tools=[GREET], tool_choice=wanted)


def test_names_that_begin_alike(llm: LlamaCppModel) -> None:
    tools = [
        tool(name, f"Tells the {what}.", city={"type": "string"})
        for name, what in (("get_time", "time"), ("get_time_zone", "time zone"))
    ]
    assert llm.chat(ask("What time is it in Rome?"), tools=tools, tool_choice="required").tool_calls[0].name in (
        "get_time",
        "get_time_zone",
    )


def test_a_tool_without_examples(llm: LlamaCppModel) -> None:
    lookup = tool("lookup", "Looks up who holds an office.", office={"type": "string", "enum": ["mayor", "judge"]})
    called = llm.chat(ask("Who is the mayor?"), tools=[lookup], tool_choice="required")
    assert called.tool_calls[0].arguments == {"office": "mayor"}
    assert "Smith" in llm.chat(after(ask("Who is the mayor?"), called, "Jane Smith"), tools=[lookup])


def test_a_call_that_does_not_end(llm: LlamaCppModel) -> None:
    response = llm.chat(ask("Greet Alexandria."), tools=[GREET], tool_choice="required", max_new_tokens=3)
    assert response.finish_reason == "length"
    assert isinstance(response.tool_calls[0].arguments, str)


def test_earlier_turns_and_the_system_prompt_count(llm: LlamaCppModel) -> None:
    messages = [{"role": "system", "content": "You set timers."}, *ask("Wake me in 45 minutes.")]
    first = llm.chat(messages, tools=[TIMER])
    messages = [
        *after(messages, first, "10:05"),
        {"role": "assistant", "content": "It rings at 10:05."},
        *ask("Set a timer for 8 minutes."),
    ]
    second = llm.chat(messages, tools=[TIMER])
    assert second.tool_calls[0].arguments == {"minutes": 8}
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_usage_counts_all_completions(llm: LlamaCppModel) -> None:
    usage = llm.chat(ask("Wake me in 45 minutes."), tools=[TIMER]).usage
    assert usage.prompt_tokens > usage.cached_tokens > 100


def test_a_template_that_knows_tools_gets_them() -> None:
    template = (
        "{% if tools %}Call one of {{ tools | tojson }} as <tool_call>\n"
        '{"name": <name>, "arguments": <arguments>}\n</tool_call>\n{% endif %}'
        "{% for m in messages %}[{{ m.role }}] {% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>\n"
        '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
        "{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
    )
    model = LlamaCppModel(n_ctx=1024, chat_template=template, temperature=0.0, max_new_tokens=2)
    try:
        prompts = [model.chat(ask("Hi"), tools=tools).usage.prompt_tokens for tools in (None, [GREET])]
        assert prompts[1] > prompts[0] + 40
        required = model.chat(ask("Greet Peter."), tools=[GREET], tool_choice="required", max_new_tokens=32)
        assert required.tool_calls[0].name == "greet"
    finally:
        model.close()
