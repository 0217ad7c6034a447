"""Tool calls of a model whose chat template knows none."""

import json
from typing import Any

import pytest

from lagent.actions import Calculator
from lagent.errors import ModelConfigurationError
from lagent.schema import ModelResponse, ResponseBuilder
from lagent_llamacpp import AsyncLlamaCppModel, LlamaCppModel


def tool(name: str, description: str, *examples: dict[str, Any], **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": description, "parameters": parameters, "examples": list(examples)}
    return {"type": "function", "function": function}


CALCULATOR = tool("calculator", "Calculates.", *Calculator.examples, expression={"type": "string"})
GREET = tool(
    "greet",
    "Greets a person.",
    {"question": "Say hello to Bob.", "arguments": {"name": "Bob"}, "result": "done", "answer": "I have greeted Bob."},
    {"question": "Greet Maria from me.", "arguments": {"name": "Maria"}, "result": "done", "answer": "I have greeted Maria."},
    name={"type": "string"},
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
    messages = ask("What is 51 + 61?")
    called = llm.chat(messages, tools=[CALCULATOR])
    assert called.finish_reason == "tool_calls"
    assert [call.name for call in called.tool_calls] == ["calculator"]
    assert json.loads(called) == {"name": "calculator", "arguments": called.tool_calls[0].arguments}
    answered = llm.chat(after(messages, called, "112"), tools=[CALCULATOR])
    assert answered.tool_calls == []
    assert "112" in answered
    assert answered == answered.strip()


def test_streaming_gives_the_same(llm: LlamaCppModel) -> None:
    builder = ResponseBuilder()
    chunks = [builder.add(chunk) for chunk in llm.stream_chat(ask("What is 51 + 61?"), tools=[CALCULATOR])]
    whole = llm.chat(ask("What is 51 + 61?"), tools=[CALCULATOR])
    assert builder.response().content == whole
    assert builder.response().tool_calls[0].arguments == whole.tool_calls[0].arguments
    assert sum(chunk.finish_reason is not None for chunk in chunks) == 1


async def test_asynchronous(async_llm: AsyncLlamaCppModel) -> None:
    called = await async_llm.chat(ask("What is 51 + 61?"), tools=[CALCULATOR, GREET])
    assert called.tool_calls[0].name == "calculator"


@pytest.mark.parametrize(("question", "name"), [("What is 51 + 61?", "calculator"), ("Please say hello to Peter.", "greet")])
def test_the_tool_that_fits_is_chosen(llm: LlamaCppModel, question: str, name: str) -> None:
    assert [call.name for call in llm.chat(ask(question), tools=[CALCULATOR, GREET]).tool_calls] == [name]


def test_no_tool_where_none_fits(llm: LlamaCppModel) -> None:
    response = llm.chat(ask("Hello!"), tools=[CALCULATOR, GREET])
    assert response.tool_calls == []
    assert response.content


def test_tool_choice(llm: LlamaCppModel) -> None:
    tools = [CALCULATOR, GREET]
    assert llm.chat(ask("Hello!"), tools=tools, tool_choice="required").tool_calls
    named = {"type": "function", "function": {"name": "greet"}}
    assert llm.chat(ask("What is 51 + 61?"), tools=tools, tool_choice=named).tool_calls[0].name == "greet"
    assert llm.chat(ask("What is 51 + 61?"), tools=tools, tool_choice="none").tool_calls == []


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
    response = llm.chat(ask("What is 51 + 61?"), tools=[CALCULATOR], max_new_tokens=3)
    assert response.finish_reason == "length"
    assert isinstance(response.tool_calls[0].arguments, str)


def test_earlier_turns_and_the_system_prompt_count(llm: LlamaCppModel) -> None:
    messages = [{"role": "system", "content": "You are a calculator."}, *ask("What is 51 + 61?")]
    called = llm.chat(messages, tools=[CALCULATOR])
    messages = [*after(messages, called, "112"), {"role": "assistant", "content": "The answer is 112."}, *ask("What is 19 + 20?")]
    assert "19" in str(llm.chat(messages, tools=[CALCULATOR]).tool_calls[0].arguments)


def test_usage_counts_all_completions(llm: LlamaCppModel) -> None:
    usage = llm.chat(ask("What is 51 + 61?"), tools=[CALCULATOR, GREET]).usage
    assert usage is not None
    assert usage.prompt_tokens > usage.cached_tokens > 0


def test_a_template_that_knows_tools_is_used() -> None:
    template = (
        "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }} Call one as <tool_call>\n"
        '{"name": …, "arguments": …}\n</tool_call><|im_end|>\n{% endif %}'
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>\n"
        '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    model = LlamaCppModel(n_ctx=1024, chat_template=template, temperature=0.0, max_new_tokens=64)
    try:
        response = model.chat(ask("Say hello to Peter."), tools=[GREET], tool_choice="required")
        assert response.tool_calls[0].name == "greet"
        assert isinstance(response.tool_calls[0].arguments, dict)
    finally:
        model.close()
