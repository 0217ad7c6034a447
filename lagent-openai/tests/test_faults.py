"""What becomes of the faults of servers and networks; each test speaks HTTP over a real socket."""

from __future__ import annotations

import email.utils
import json
import socket
import time
from typing import Any

import pytest

from lagent.errors import (
    AuthenticationError,
    ContextOverflowError,
    EngineError,
    ModelConfigurationError,
    ModelConnectionError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
)
from lagent.schema import ModelResponse, ResponseBuilder

from .faulty_server import END, HELLO, STREAM, Reply, Server, answer, event, failure, http, stream

ASK = [{"role": "user", "content": "Say hello"}]


def collect(chunks: Any) -> ModelResponse:
    builder = ResponseBuilder()
    for chunk in chunks:
        builder.add(chunk)
    return builder.response()


def streamed(model: Any) -> ModelResponse:
    return collect(model.stream_chat(ASK))


def whole(model: Any) -> ModelResponse:
    return model.chat(ASK)


WAYS = pytest.mark.parametrize("ask", [whole, streamed])


@WAYS
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, ModelConfigurationError),
        (401, AuthenticationError),
        (403, AuthenticationError),
        (404, ModelConfigurationError),
        (408, ModelTimeoutError),
        (409, EngineError),
        (413, ModelConfigurationError),
        (422, ModelConfigurationError),
        (429, RateLimitError),
        (500, EngineError),
        (502, EngineError),
        (503, EngineError),
        (504, ModelTimeoutError),
    ],
)
def test_status(server: Server, make: Any, ask: Any, status: int, error: type[ModelError]) -> None:
    server.play(failure(status, "no luck today", x_request_id="req-9"))
    with pytest.raises(error, match=f"answered {status}.*no luck today") as caught:
        ask(make())
    assert type(caught.value) is error
    assert caught.value.request_id == "req-9"
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("This model's maximum context length is 2048 tokens. However, you requested 4000 tokens.", "context_length_exceeded"),
        ("the request exceeds the available context size, try increasing it", None),
        ("The prompt is too long: 5000 tokens", None),
        ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", None),
        ("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096", None),
        ("Your input exceeds the context window of this model.", None),
        ("Input length (3021) must be smaller than the model context length (2048).", None),
        ("Requested token count exceeds the model's maximum context length of 8192 tokens.", None),
    ],
)
def test_context_overflow(server: Server, make: Any, message: str, code: str | None) -> None:
    server.play(failure(400, message, code))
    with pytest.raises(ContextOverflowError):
        make().chat(ASK)


@pytest.mark.parametrize(
    ("status", "value", "expected"),
    [(429, "7", 7), (429, "0.25", 0.25), (503, "3", 3), (429, "-5", 0), (429, "soon", None), (429, "nan", None)],
)
def test_retry_after_is_read(server: Server, make: Any, status: int, value: str, expected: float | None) -> None:
    server.play(failure(status, retry_after=value))
    with pytest.raises(RateLimitError) as caught:
        make().chat(ASK)
    assert caught.value.retry_after == expected


def test_retry_after_is_read_from_a_date(server: Server, make: Any) -> None:
    server.play(failure(429, retry_after=email.utils.formatdate(time.time() + 1000, usegmt=True)))
    with pytest.raises(RateLimitError) as caught:
        make().chat(ASK)
    assert 900 < caught.value.retry_after <= 1000


@WAYS
def test_retry_waits_as_long_as_the_server_says(server: Server, make: Any, ask: Any) -> None:
    server.play(failure(429, retry_after="0.3"), answer("Hello") if ask is whole else stream(*HELLO, *END))
    start = time.monotonic()
    assert ask(make(retry=1)) == "Hello"
    assert time.monotonic() - start >= 0.3
    assert len(server.requests) == 2


def test_no_retry_where_the_server_asks_for_too_long(server: Server, make: Any) -> None:
    server.play(failure(429, retry_after="3600"))
    with pytest.raises(RateLimitError) as caught:
        make(retry=5).chat(ASK)
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


@WAYS
@pytest.mark.parametrize("fault", [failure(500), Reply([Reply.RESET]), http(200, "not json at all")])
def test_retry_after_a_passing_fault(server: Server, make: Any, ask: Any, fault: Reply) -> None:
    if ask is streamed and fault.steps and b"not json" in bytes(str(fault.steps[0]), "utf-8"):
        fault = stream(b"data: not json at all\n\n")
    server.play(fault, answer("Hello") if ask is whole else stream(*HELLO, *END))
    assert ask(make(retry=1)) == "Hello"


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_no_retry_where_it_cannot_help(server: Server, make: Any, status: int) -> None:
    server.play(failure(status))
    with pytest.raises(ModelError):
        make(retry=3).chat(ASK)
    assert len(server.requests) == 1


def test_no_retry_once_a_token_was_delivered(server: Server, make: Any) -> None:
    server.play(stream(*HELLO, 0.05, Reply.RESET))
    chunks = make(retry=3).stream_chat(ASK)
    assert next(chunks).content == "Hel"
    with pytest.raises(ModelConnectionError):
        list(chunks)
    assert len(server.requests) == 1


@WAYS
def test_connection_refused(make: Any, ask: Any) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    with pytest.raises(ModelConnectionError, match="failed"):
        ask(make(api_base=url))


@WAYS
def test_reset_before_headers(server: Server, make: Any, ask: Any) -> None:
    server.play(Reply([Reply.RESET]))
    with pytest.raises(ModelConnectionError):
        ask(make())


BROKEN_STREAMS = {
    "reset in the middle": ([*HELLO, 0.05, Reply.RESET], ModelConnectionError),
    "closed in the middle": ([*HELLO], ModelConnectionError),
    "half a character at the end": ([*HELLO, b'data: {"choices": [{"delta": {"content": "\xe6\x80'], EngineError),
    "half a character in a complete line": ([*HELLO, b'data: {"choices": [{"delta": {"content": "\xe6"}}]}\n\n'], EngineError),
    "no JSON": ([*HELLO, b"data: {oops\n\n", *END], EngineError),
    "JSON that is no object": ([*HELLO, b"data: [1, 2]\n\n", *END], EngineError),
    "JSON of another form": ([*HELLO, b'data: {"choices": [7]}\n\n', *END], EngineError),
    "an error object": ([*HELLO, event(error={"message": "CUDA error", "code": 500})], EngineError),
    "an error object of a bad request": ([*HELLO, event(error={"message": "bad", "code": 400})], ModelConfigurationError),
    "an error object in words": ([event(error={"message": "slow", "type": "rate_limit_error"})], RateLimitError),
    "an error object of overflow": (
        [event(error={"message": "x", "type": "invalid_request_error", "code": "context_length_exceeded"})],
        ContextOverflowError,
    ),
    "nothing": ([], ModelConnectionError),
    "only [DONE]": ([b"data: [DONE]\n\n"], ModelConnectionError),
}


@pytest.mark.parametrize(("steps", "error"), BROKEN_STREAMS.values(), ids=BROKEN_STREAMS)
def test_broken_stream(server: Server, make: Any, steps: list[Any], error: type[ModelError]) -> None:
    server.play(stream(*steps))
    with pytest.raises(error) as caught:
        streamed(make())
    assert type(caught.value) is error


SOUND_STREAMS = {
    "no [DONE]": [*HELLO, *END[:-1]],
    "empty choices": [event(), *HELLO, event(), *END],
    "null content": [event({"content": None}), *HELLO, event({"content": None}), *END],
    "no delta": [*HELLO, b'data: {"choices": [{"index": 0}]}\n\n', *END],
    "comments and unknown fields": [b": ping\n\n", b"retry: 5\nfoo\nbar: baz\nevent: message\n", *HELLO, b": ping\n\n", *END],
    "CRLF": [piece.replace(b"\n", b"\r\n") for piece in (*HELLO, *END)],
    "data without a space": [piece.replace(b"data: ", b"data:") for piece in (*HELLO, *END)],
    "usage beside the finish reason": [*HELLO, event({}, "stop", usage={"prompt_tokens": 7, "completion_tokens": 3})],
    "one byte at a time": [bytes([byte]) for byte in b"".join((*HELLO, *END))],
}


@pytest.mark.parametrize("steps", SOUND_STREAMS.values(), ids=SOUND_STREAMS)
def test_odd_but_sound_stream(server: Server, make: Any, steps: list[Any]) -> None:
    server.play(stream(*steps))
    response = streamed(make())
    assert response == "Hello"
    assert response.finish_reason == "stop"
    assert response.usage.prompt_tokens == 7


BROKEN_ANSWERS = {
    "empty choices": (http(200, {"id": "x", "choices": []}), EngineError),
    "no choices": (http(200, {"id": "x"}), EngineError),
    "not JSON": (http(200, "<html>hello</html>", content_type="text/html"), EngineError),
    "half of it": (Reply([b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{"]), ModelConnectionError),
    "half a character": (http(200, b'{"choices": [{"message": {"content": "\xe6'), EngineError),
    "a list": (http(200, "[1]"), EngineError),
    "no HTTP": (Reply([b"SSH-2.0-OpenSSH_9.2\r\n\r\n"]), ModelConnectionError),
}


@pytest.mark.parametrize(("reply", "error"), BROKEN_ANSWERS.values(), ids=BROKEN_ANSWERS)
def test_broken_answer(server: Server, make: Any, reply: Reply, error: type[ModelError]) -> None:
    reply.steps = [step.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1) for step in reply.steps]
    server.play(reply)
    with pytest.raises(error) as caught:
        make().chat(ASK)
    assert type(caught.value) is error


def test_null_content(server: Server, make: Any) -> None:
    server.play(answer(None))
    assert make().chat(ASK).content == ""


def test_huge_answer_arrives_whole(server: Server, make: Any) -> None:
    text = "é" * 300_000
    server.play(answer(text))
    assert make().chat(ASK).content == text
    server.play(stream(event({"content": text}), *END))
    assert streamed(make()).content == text


def test_huge_error_is_cut_short(server: Server, make: Any) -> None:
    for body in ("x" * 500_000, json.dumps({"error": {"message": "x" * 500_000}})):
        server.play(http(500, body))
        with pytest.raises(EngineError) as caught:
            make().chat(ASK)
        assert len(str(caught.value)) < 1_000


@WAYS
def test_redirect_is_followed(server: Server, make: Any, ask: Any) -> None:
    server.play(http(307, "", location=f"{server.url}/elsewhere"), answer("Hello") if ask is whole else stream(*HELLO, *END))
    assert ask(make()) == "Hello"
    assert server.requests[1].path == "/v1/elsewhere"
    assert server.requests[1].body == server.requests[0].body


def test_redirect_in_circles(server: Server, make: Any) -> None:
    server.play(http(307, "", location=f"{server.url}/chat/completions"))
    with pytest.raises(ModelConnectionError):
        make().chat(ASK)


# Time limits


@pytest.mark.parametrize(
    ("reply", "limits", "match"),
    [
        (Reply([Reply.HANG]), {"first_token": 0.2}, r"no first token in 0\.2 s"),
        (Reply([STREAM, Reply.HANG]), {"first_token": 0.2}, r"no first token in 0\.2 s"),
        (Reply([STREAM, *[b": ping\n\n", 0.05] * 40]), {"first_token": 0.3}, r"no first token in 0\.3 s"),
        (Reply([STREAM, *HELLO, Reply.HANG]), {"between_tokens": 0.2}, r"no further token in 0\.2 s"),
        (Reply([STREAM, *HELLO, *[b": ping\n\n", 0.05] * 40]), {"between_tokens": 0.3}, r"no further token in 0\.3 s"),
        (Reply([STREAM, *[event({"content": "a"}), 0.05] * 60]), {"total": 0.5}, r"no complete answer in 0\.5 s"),
    ],
    ids=["no headers", "only headers", "only comments", "stalled", "stalled with comments", "without end"],
)
def test_stream_that_takes_too_long(server: Server, make: Any, reply: Reply, limits: dict[str, float], match: str) -> None:
    server.play(reply)
    with pytest.raises(ModelTimeoutError, match=match):
        streamed(make(timeout=limits))
    assert server.gone.wait(5), "the connection stayed open"


def test_a_slow_reader_is_no_slow_server(server: Server, make: Any) -> None:
    server.play(stream(*HELLO, *END))
    text = ""
    for chunk in make(timeout={"between_tokens": 0.1}).stream_chat(ASK):
        text += chunk.content
        time.sleep(0.15)
    assert text == "Hello"


def test_answer_that_takes_too_long(server: Server, make: Any) -> None:
    server.play(Reply([Reply.HANG]))
    with pytest.raises(ModelTimeoutError, match=r"no complete answer in 0\.2 s"):
        make(timeout=0.2).chat(ASK)
    assert server.gone.wait(5)


def test_connecting_takes_too_long(make: Any) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = []
        for _ in range(4):  # fill the queue of connections, which nobody accepts
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(address)
        with pytest.raises(ModelTimeoutError, match="could not be reached"):
            make(api_base=f"http://127.0.0.1:{address[1]}/v1", timeout={"connect": 0.2}).chat(ASK)
        for one in waiting:
            one.close()


@pytest.mark.parametrize("value", [{"connection": 3}, {"total": 0}, -1, "soon"])
def test_timeout_that_cannot_be_used(make: Any, value: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="timeout"):
        make(timeout=value)
