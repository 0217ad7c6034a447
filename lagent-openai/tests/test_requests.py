"""What servers are sent, and what is read from their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lagent.errors import EngineError, ModelConfigurationError, UnsupportedCapabilityError
from lagent.schema import ResponseBuilder, ToolCall, ToolCallDelta, Usage
from lagent_openai import DIALECTS, file_part, image_part

from .faulty_server import END, HELLO, Server, answer, event, failure, http, stream

ASK = [{"role": "user", "content": "Say hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        "examples": [{"arguments": {"a": 1}}],
    },
}
SCHEMA = {"title": "A city!", "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def sent(server: Server) -> dict[str, Any]:
    return server.requests[-1].body


# Parameters and dialects


def test_plain_request(server: Server, make: Any) -> None:
    make(dialect="openai").chat(ASK)
    assert sent(server) == {"model": "m", "messages": ASK, "max_completion_tokens": 512}
    request = server.requests[-1]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-secret-key-of-the-test"
    assert request.headers["x-client-request-id"]


def test_streamed_request_asks_for_usage(server: Server, make: Any) -> None:
    server.play(stream(*HELLO, *END))
    list(make(dialect="openai").stream_chat(ASK))
    assert sent(server)["stream"] is True
    assert sent(server)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("dialect", "given", "expected"),
    [
        ("openai", {"stop_words": ["x"], "max_new_tokens": 5}, {"stop": ["x"], "max_completion_tokens": 5}),
        ("openai", {"reasoning_effort": "low", "n": 2, "seed": 3}, {"reasoning_effort": "low", "n": 2, "seed": 3}),
        ("vllm", {"top_k": 4, "repetition_penalty": 1.1}, {"top_k": 4, "repetition_penalty": 1.1}),
        ("vllm", {"regex": "a+", "max_new_tokens": 5}, {"structured_outputs": {"regex": "a+"}, "max_tokens": 5}),
        ("vllm", {"chat_template_kwargs": {"thinking": False}}, {"chat_template_kwargs": {"thinking": False}}),
        ("llamacpp", {"repetition_penalty": 1.1, "grammar": 'root ::= "a"'}, {"repeat_penalty": 1.1, "grammar": 'root ::= "a"'}),
        ("sglang", {"grammar": 'root ::= "a"', "min_p": 0.1}, {"ebnf": 'root ::= "a"', "min_p": 0.1}),
        ("lmdeploy", {"top_k": 1, "min_new_tokens": 2}, {"top_k": 1, "min_new_tokens": 2}),
        ("ollama", {"seed": 1, "stop_words": "x"}, {"seed": 1, "stop": ["x"]}),
        ("tgi", {"logprobs": True, "top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ("compatible", {"temperature": 0.0}, {"temperature": 0.0}),
    ],
)
def test_parameters_travel_as_the_dialect_says(
    server: Server, make: Any, dialect: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    make(dialect=dialect, max_new_tokens=None).chat(ASK, **given)
    assert sent(server) == {"model": "m", "messages": ASK, **expected}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_parameter_of_a_dialect_reaches_the_body(server: Server, make: Any, dialect: str) -> None:
    given = {name: f"<{name}>" for name in DIALECTS[dialect].parameters if name not in ("stop_words", "n")}
    make(dialect=dialect).chat(ASK, **given)
    text = json.dumps(sent(server))
    assert all(value in text for value in given.values())


@pytest.mark.parametrize(("dialect", "name"), [("openai", "top_k"), ("vllm", "repeat_penalty"), ("ollama", "min_p")])
def test_unknown_parameter_is_refused_before_the_call(server: Server, make: Any, dialect: str, name: str) -> None:
    model = make(dialect=dialect)
    with pytest.raises(ModelConfigurationError, match=f"'{dialect}' servers know no parameter '{name}'"):
        model.chat(ASK, **{name: 1})
    with pytest.raises(ModelConfigurationError, match=name):
        list(model.stream_chat(ASK, **{name: 1}))
    assert server.requests == []


def test_unknown_parameter_goes_through_in_extra_body(server: Server, make: Any) -> None:
    make(dialect="openai", extra_body={"top_k": 7}).chat(ASK)
    assert sent(server)["top_k"] == 7


def test_parameter_that_is_no_json(server: Server, make: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="JSON"):
        make(dialect="openai").chat(ASK, logit_bias={1, 2})
    assert server.requests == []


def test_the_lagent_name_is_suggested(make: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="did you mean 'max_new_tokens'"):
        make(dialect="openai").chat(ASK, max_tokens=5)


def test_grammar_is_refused_where_there_is_none(make: Any) -> None:
    with pytest.raises(UnsupportedCapabilityError, match="grammar"):
        make(dialect="openai").chat(ASK, grammar='root ::= "a"')


@pytest.mark.parametrize("name", [name for name, dialect in DIALECTS.items() if dialect.owned_by])
def test_the_server_tells_its_dialect(server: Server, make: Any, name: str) -> None:
    server.owned_by = DIALECTS[name].owned_by[0]
    make().chat(ASK, max_new_tokens=3)
    assert sent(server)[DIALECTS[name].parameters["max_new_tokens"]] == 3


@pytest.mark.parametrize("name", ["llamacpp", "ollama", "tgi"])
def test_a_probe_tells_the_dialect(server: Server, make: Any, name: str) -> None:
    path, field = DIALECTS[name].probe or ("", "")
    server.pages[path] = {field: 1}
    with pytest.raises(ModelConfigurationError, match=f"'{name}' servers know no parameter"):
        make().chat(ASK, no_such_parameter=1)


def test_unknown_server_gets_what_all_know(server: Server, make: Any) -> None:
    model = make()
    model.chat(ASK, temperature=0)
    assert sent(server) == {"model": "m", "messages": ASK, "max_tokens": 512, "temperature": 0}
    with pytest.raises(ModelConfigurationError, match="compatible"):
        model.chat(ASK, top_k=1)


def test_unknown_dialect(make: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="vllm"):
        make(dialect="vlmm")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("{}/v1", "/v1/chat/completions"),
        ("{}/v1/", "/v1/chat/completions"),
        ("{}", "/v1/chat/completions"),
        ("{}/v1/chat/completions", "/v1/chat/completions"),
        ("{}/v1/responses", "/v1/chat/completions"),
        ("{}/proxy/openai", "/proxy/openai/chat/completions"),
    ],
)
def test_api_base(server: Server, make: Any, url: str, path: str) -> None:
    make(api_base=url.format(server.url.removesuffix("/v1")), dialect="openai").chat(ASK)
    assert server.requests[-1].path == path


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://h/v1", "", "http://"])
def test_api_base_that_is_no_url(make: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "nonsense")
    with pytest.raises(ModelConfigurationError, match="api_base"):
        make(api_base=url)


def test_proxy(server: Server, make: Any) -> None:
    proxy = server.url.removesuffix("/v1")
    make(api_base="http://api.example.org/v1", proxies={"http": proxy}, dialect="openai").chat(ASK)
    assert server.requests[-1].path == "http://api.example.org/v1/chat/completions"


# Messages


def test_roles(server: Server, make: Any) -> None:
    messages = [{"role": role, "content": "x"} for role in ("system", "developer", "user", "environment")]
    make(dialect="openai").chat(messages)
    assert [message["role"] for message in sent(server)["messages"]] == ["system", "developer", "user", "system"]
    make(dialect="vllm").chat(messages)
    assert [message["role"] for message in sent(server)["messages"]] == ["system", "system", "user", "system"]


def test_meta_template_maps_roles(server: Server, make: Any) -> None:
    template = [{"role": "user", "api_role": "user"}, {"role": "environment", "api_role": "user", "begin": "<<", "end": ">>"}]
    make(dialect="openai", meta_template=template).chat([*ASK, {"role": "environment", "content": "x"}])
    assert sent(server)["messages"] == [*ASK, {"role": "user", "content": "<<x>>"}]


def test_meta_template_of_text_goes_to_completions(server: Server, make: Any) -> None:
    template = [
        {"role": "user", "begin": "<u>", "end": "\n"},
        {"role": "assistant", "begin": "<a>", "end": "\n"},
    ]
    server.play(http(200, {"choices": [{"text": "Hello", "finish_reason": "stop"}]}))
    assert make(dialect="openai", meta_template=template).chat(ASK) == "Hello"
    assert server.requests[-1].path == "/v1/completions"
    assert sent(server) == {"model": "m", "prompt": "<u>Say hello\n<a>", "max_tokens": 512}


def test_generate_streams_from_completions(server: Server, make: Any) -> None:
    pieces = [b'data: {"choices": [{"text": "%s", "finish_reason": null}]}\n\n' % text for text in (b"Hel", b"lo")]
    server.play(
        stream(*pieces, b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\n\n', event(usage={"prompt_tokens": 2}))
    )
    chunks = list(make(dialect="vllm").stream_generate("Say"))
    assert [chunk.content for chunk in chunks] == ["Hel", "lo", ""]
    assert chunks[-1].finish_reason == "length"
    assert chunks[-1].usage == Usage(2, 0)


def test_past_tool_calls_are_sent_as_text(server: Server, make: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": {"a": "é"}}}
    messages = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]
    make(dialect="openai").chat(messages)
    assert sent(server)["messages"][1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": "é"}'}
    assert call["function"]["arguments"] == {"a": "é"}, "the caller's message was changed"


def test_parts_from_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    assert image_part(tmp_path / "a.png", "low")["image_url"] == {"url": "data:image/png;base64,iVBORw==", "detail": "low"}
    assert image_part("https://example.org/a.png")["image_url"]["url"] == "https://example.org/a.png"
    assert file_part(tmp_path / "a.pdf")["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}


# Tools and structured output


@pytest.mark.parametrize(
    ("dialect", "choice", "strict"),
    [("openai", "required", False), ("vllm", "auto", False), ("vllm", "required", True), ("vllm", None, False)],
)
def test_tools(server: Server, make: Any, dialect: str, choice: str | None, strict: bool) -> None:
    make(dialect=dialect).chat(ASK, tools=[TOOL], tool_choice=choice)
    function = sent(server)["tools"][0]["function"]
    assert function.pop("strict", False) is strict
    assert function == {key: value for key, value in TOOL["function"].items() if key != "examples"}
    assert sent(server).get("tool_choice") == choice
    assert "examples" in TOOL["function"], "the caller's tool was changed"


def test_output_schema(server: Server, make: Any) -> None:
    make(dialect="vllm").chat(ASK, output_schema=SCHEMA)
    assert sent(server)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "A_city_", "schema": SCHEMA, "strict": True},
    }


def test_json_mode(server: Server, make: Any) -> None:
    make(dialect="openai", json_mode=True).chat(ASK)
    assert sent(server)["response_format"] == {"type": "json_object"}


# Answers


def test_whole_answer(server: Server, make: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    bad = {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{oops"}}
    server.play(answer("Hi", reasoning_content="because", tool_calls=[call, bad]))
    response = make(dialect="lmdeploy").chat(ASK)
    assert response == "Hi"
    assert response.reasoning == "because"
    assert response.tool_calls == [ToolCall("add", {"a": 1}, "c1"), ToolCall("add", "{oops", "c2")]
    assert response.finish_reason == "tool_calls"
    assert response.usage == Usage(7, 3, 4, 1)
    assert response.extra["request_id"] == "chatcmpl-1"
    assert response.raw["choices"][0]["message"]["content"] == "Hi"


@pytest.mark.parametrize(
    ("dialect", "field"), [("vllm", "reasoning"), ("llamacpp", "reasoning_content"), ("ollama", "reasoning")]
)
def test_reasoning_where_the_dialect_has_it(server: Server, make: Any, dialect: str, field: str) -> None:
    server.play(answer("Hi", **{field: "because"}))
    assert make(dialect=dialect).chat(ASK).reasoning == "because"
    server.play(stream(event({field: "be"}), event({field: "cause"}), event({"content": "Hi"}), *END))
    chunks = list(make(dialect=dialect).stream_chat(ASK))
    assert [chunk.reasoning for chunk in chunks] == ["be", "cause", "", ""]


def test_streamed_tool_calls(server: Server, make: Any) -> None:
    def piece(index: int | None, name: str | None = None, arguments: str | None = None, id: str | None = None) -> bytes:
        call = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
        return event({"tool_calls": [{key: value for key, value in call.items() if value is not None}]})

    server.play(
        stream(piece(0, "add", "", "c1"), piece(0, None, '{"a"'), piece(1, "sub", '{"b": 2}', "c2"), piece(0, None, ": 1}"), *END)
    )
    builder = ResponseBuilder()
    chunks = [builder.add(chunk) for chunk in make(dialect="openai").stream_chat(ASK, tools=[TOOL])]
    assert chunks[0].tool_calls == [ToolCallDelta(0, "add", "", "c1")]
    assert builder.response().tool_calls == [ToolCall("add", {"a": 1}, "c1"), ToolCall("sub", {"b": 2}, "c2")]
    assert builder.response().finish_reason == "tool_calls", "servers say 'stop' after a call that was required"


def test_tool_calls_without_id_get_one(server: Server, make: Any) -> None:
    call = {"function": {"name": "add", "arguments": {"a": 1}}}
    server.play(answer(None, tool_calls=[call, call]))
    first, second = make(dialect="ollama").chat(ASK, tools=[TOOL]).tool_calls
    assert first.arguments == {"a": 1}
    assert first.id
    assert first.id != second.id


def test_usage_comes_with_the_last_chunk_only(server: Server, make: Any) -> None:
    server.play(stream(*HELLO, *END))
    chunks = list(make(dialect="openai").stream_chat(ASK))
    assert [chunk.content for chunk in chunks] == ["Hel", "lo", ""]
    assert [chunk.finish_reason for chunk in chunks] == [None, None, "stop"]
    assert [chunk.usage for chunk in chunks] == [None, None, Usage(7, 3, 4, 1)]
    assert chunks[-1].extra["request_id"] == "chatcmpl-1"


def test_several_answers(server: Server, make: Any) -> None:
    choices = [{"index": i, "message": {"content": text}, "finish_reason": "stop"} for i, text in enumerate(["a", "b"])]
    server.play(http(200, {"choices": choices}))
    model = make(dialect="openai")
    response = model.chat(ASK, n=2)
    assert response == "a"
    assert response.extra["choices"] == ["b"]
    with pytest.raises(ModelConfigurationError, match="streamed"):
        list(model.stream_chat(ASK, n=2))


def test_logprobs(server: Server, make: Any) -> None:
    entries = [{"token": token, "logprob": -0.5, "top_logprobs": []} for token in ("Hel", "lo")]
    pieces = [
        b"data: " + json.dumps({"choices": [{"delta": {"content": e["token"]}, "logprobs": {"content": [e]}}]}).encode() + b"\n\n"
        for e in entries
    ]
    server.play(stream(*pieces, *END))
    chunks = list(make(dialect="openai").stream_chat(ASK, logprobs=True))
    assert chunks[-1].extra["logprobs"] == entries


# Responses API

OUTPUT = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "because"}]},
    {"type": "message", "content": [{"type": "output_text", "text": "Hello", "logprobs": [{"token": "Hello", "logprob": -1}]}]},
    {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
]
RESPONSE = {
    "id": "resp_1",
    "status": "completed",
    "output": OUTPUT,
    "usage": {
        "input_tokens": 7,
        "output_tokens": 3,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 1},
    },
}


def responses(make: Any, **options: Any) -> Any:
    return make(dialect="openai", api="responses", **options)


def test_responses_request(server: Server, make: Any) -> None:
    server.play(http(200, RESPONSE))
    image, document = image_part("https://example.org/a.png"), {"type": "file", "file": {"filename": "a.pdf", "file_data": "x"}}
    call = {"id": "c0", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, image, document]},
        {"role": "assistant", "content": "I add.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c0", "content": "1"},
    ]
    options = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "add"}}, "output_schema": SCHEMA}
    responses(make).chat(messages, reasoning_effort="low", verbosity="low", logprobs=True, **options)
    assert server.requests[-1].path == "/v1/responses"
    assert sent(server) == {
        "model": "m",
        "input": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look"},
                    {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
                    {"type": "input_file", "filename": "a.pdf", "file_data": "x"},
                ],
            },
            {"role": "assistant", "content": "I add."},
            {"type": "function_call", "call_id": "c0", "name": "add", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "c0", "output": "1"},
        ],
        "store": False,
        "max_output_tokens": 512,
        "reasoning": {"effort": "low"},
        "include": ["message.output_text.logprobs"],
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": "Adds",
                "parameters": TOOL["function"]["parameters"],
                "strict": False,
            }
        ],
        "tool_choice": {"type": "function", "name": "add"},
        "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "A_city_", "schema": SCHEMA, "strict": True}},
    }


def test_responses_answer(server: Server, make: Any) -> None:
    server.play(http(200, RESPONSE))
    response = responses(make).chat(ASK)
    assert response == "Hello"
    assert response.reasoning == "because"
    assert response.tool_calls == [ToolCall("add", {"a": 1}, "c1")]
    assert response.finish_reason == "tool_calls"
    assert response.usage == Usage(7, 3, 4, 1)
    assert response.extra["logprobs"] == [{"token": "Hello", "logprob": -1}]


def test_responses_stream(server: Server, make: Any) -> None:
    events = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.reasoning_summary_text.delta", "delta": "because"},
        {"type": "response.output_text.delta", "delta": "Hel"},
        {"type": "response.output_text.delta", "delta": "lo"},
        {"type": "response.output_item.added", "output_index": 2, "item": {**OUTPUT[2], "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"a": 1}'},
        {"type": "response.completed", "response": RESPONSE},
    ]
    server.play(stream(*[f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]))
    builder = ResponseBuilder()
    for chunk in responses(make).stream_chat(ASK):
        builder.add(chunk)
    response = builder.response()
    assert (response.content, response.reasoning, response.finish_reason) == ("Hello", "because", "tool_calls")
    assert response.tool_calls == [ToolCall("add", {"a": 1}, "c1")]
    assert response.usage == Usage(7, 3, 4, 1)
    assert response.extra["logprobs"] == [{"token": "Hello", "logprob": -1}]


@pytest.mark.parametrize(
    "last",
    [
        {"type": "error", "message": "it broke"},
        {"type": "response.failed", "response": {"status": "failed", "error": {"message": "it broke"}}},
    ],
)
def test_responses_stream_that_fails(server: Server, make: Any, last: dict[str, Any]) -> None:
    server.play(stream(f"data: {json.dumps(last)}\n\n".encode()))
    with pytest.raises(EngineError, match="it broke"):
        list(responses(make).stream_chat(ASK))


def test_responses_cut_short(server: Server, make: Any) -> None:
    server.play(http(200, {**RESPONSE, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}))
    assert responses(make).chat(ASK).finish_reason == "length"


def test_parameter_that_responses_does_not_know(make: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="stop_words"):
        responses(make).chat(ASK, stop_words=["x"])


def test_auto_takes_responses_where_the_server_says_so(server: Server, make: Any) -> None:
    refusal = failure(404, "This model is only supported in v1/responses and not in v1/chat/completions.")
    server.play(refusal, http(200, RESPONSE))
    model = make(dialect="openai")
    assert model.chat(ASK) == "Hello"
    assert model.chat(ASK) == "Hello"
    assert [request.path for request in server.requests] == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]


def test_unknown_api(make: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="chat"):
        make(api="assistants")
