"""``lagent chat``, in a terminal and from a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pexpect = pytest.importorskip("pexpect", reason="needs a POSIX terminal")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    # Without a script, the model says what the last message says: all messages of the user since the last answer.
    file = tmp_path / "agent.json"
    file.write_text(json.dumps({"agent": {"type": "tools", "llm": {"type": "echo", "delay": 0.2}}}))
    return file


@pytest.fixture
def terminal(config: Path, tmp_path: Path) -> Iterator[Any]:
    env = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    arguments = ["-m", "lagent", "chat", str(config)]
    child = pexpect.spawn(sys.executable, arguments, env=env, encoding="utf-8", timeout=30, dimensions=(24, 120))
    child.expect("/help")
    child.expect(">")
    yield child
    child.close(force=True)


def ask(terminal: Any, question: str, expected: str) -> None:
    terminal.send(f"{question}\r")
    terminal.expect("ToolAgent: ")
    terminal.expect(f"{expected}\r\n")


def leave(terminal: Any) -> None:
    terminal.expect(">")
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


def test_answers_are_written_as_they_grow(terminal: Any) -> None:
    terminal.send("one two three\r")
    terminal.expect("ToolAgent: ")
    terminal.expect("one")
    assert "three" not in terminal.buffer
    terminal.expect("three\r\n")
    leave(terminal)


def test_ctrl_c_stops_the_answer_and_leaves_no_trace_of_the_turn(terminal: Any) -> None:
    terminal.send("one two three four five six seven eight nine ten\r")
    terminal.expect("ToolAgent: ")
    terminal.expect("three")
    terminal.sendintr()
    terminal.sendintr()  # impatience is no reason to end the program
    terminal.expect("stopped")
    assert "ten" not in terminal.before
    terminal.expect(">")
    ask(terminal, "again", "again")
    leave(terminal)


def test_ctrl_c_at_the_prompt_drops_the_line(terminal: Any) -> None:
    terminal.send("never mind")
    terminal.expect("mind")
    terminal.sendintr()
    ask(terminal, "well", "well")
    leave(terminal)


def test_earlier_lines_come_back(terminal: Any) -> None:
    ask(terminal, "first", "first")
    terminal.expect(">")
    terminal.send("\x1b[A\r")  # the key "up"
    terminal.expect("ToolAgent: ")
    terminal.expect("first\r\n")
    leave(terminal)


def test_commands(terminal: Any) -> None:
    terminal.send("/help\r")
    terminal.expect("forget the conversation")
    terminal.send("/reset\r")
    terminal.expect("is forgotten")
    terminal.send("/quit\r")
    terminal.expect("There is no command /quit")
    leave(terminal)


def test_a_conversation_from_a_pipe(config: Path) -> None:
    script = "hello\n/reset\nlast line without an end"
    done = subprocess.run(
        [sys.executable, "-m", "lagent", "chat", str(config)],
        input=script,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "ToolAgent: hello\nThe conversation is forgotten.\nToolAgent: last line without an end\n"
    assert done.stderr == ""


def test_a_failed_turn_is_told_and_the_chat_goes_on(tmp_path: Path, lagent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agent.json"
    file.write_text(json.dumps({"agent": {"type": "agent", "llm": {"type": "echo", "answers": ["one"]}}}))
    with (tmp_path / "input").open("w+") as pipe:
        pipe.write("a\nb\nc\n")
        pipe.seek(0)
        monkeypatch.setattr(sys, "stdin", pipe)
        code, out, err = lagent("chat", file)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "Agent: one"
    assert [line.split(":")[0] for line in out.splitlines()[1:]] == ["error", "error"]
