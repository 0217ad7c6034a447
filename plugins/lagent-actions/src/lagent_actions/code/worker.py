"""The program of a light session: runs pieces of Python code in one namespace.

Reads ``{"id", "code", "most"}`` from the file descriptor that is its first argument, a JSON object on each line, and answers on the
second, after an empty line when it is ready, with ``{"id", "value", "error"}``: the text of the last expression, and the traceback if the code raised. What is printed goes to
standard output.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import json
import linecache
import os
import signal
import sys
import traceback
from typing import Any


def main() -> None:
    requests, responses = int(sys.argv[1]), int(sys.argv[2])
    for descriptor in (requests, responses):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[0], sys.argv = "", [""]
    builtins.input = _no_input
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    me = os.getpid()
    os.write(responses, b"\n")  # ready
    for line in os.fdopen(requests, encoding="utf-8"):
        request = json.loads(line)
        value, error = _run(request, namespace)
        if os.getpid() != me:  # the code forked, and this is the child, which has nothing to say
            os._exit(0)
        answer = {"id": request["id"], "value": value, "error": error}
        data = memoryview(json.dumps(answer).encode() + b"\n")
        while data:
            data = data[os.write(responses, data) :]


def _no_input(*_: Any) -> str:
    raise EOFError("nobody answers input() here; write the value into the code")


def _run(request: dict[str, Any], namespace: dict[str, Any]) -> tuple[str | None, str | None]:
    name = f"<cell {request['id']}>"
    most = request["most"]
    value = error = None
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        value = _text(_evaluate(request["code"], name, namespace), most)
    except BaseException as raised:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        error = _traceback(raised, name)
        error = error if len(error) <= most else f"{error[: most // 2]}\n[…]\n{error[-most // 2 :]}"
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the code closed or replaced it
            stream.flush()
    return value, error


def _evaluate(code: str, name: str, namespace: dict[str, Any]) -> Any:
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    body = ast.parse(code, name)
    last = body.body[-1] if body.body and isinstance(body.body[-1], ast.Expr) else None
    if last is not None:
        body.body.pop()
    exec(compile(body, name, "exec"), namespace)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), name, "eval"), namespace)


def _text(value: Any, most: int) -> str | None:
    return None if value is None else str(value)[: most + 1].encode("utf-8", "backslashreplace").decode()


def _traceback(error: BaseException, name: str) -> str:
    """The traceback without the frames of this program."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    try:
        lines = traceback.format_exception(type(error), error, trace)
        return "".join(lines).strip().encode("utf-8", "backslashreplace").decode()
    except BaseException as second:  # of a __str__ of the error, or for want of memory
        return f"{type(error).__name__} (which cannot be shown: {type(second).__name__})"


if __name__ == "__main__":
    main()
