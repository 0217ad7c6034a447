"""What goes wrong on the command line is told in one line: what, where, and what to do. The exit code is not 0."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = {
    "no such file": (None, ["there is no configuration file 'agent.toml'"]),
    "no table": ("", ["agent.toml", 'no table "agent"', "[agent]"]),
    "no model": ('[agent]\ntype = "tools"\n', ["has no model", "llm="]),
    "wrong name of a component": (
        '[agent]\ntype = "tools"\n[agent.llm]\ntype = "lamacpp"\n',
        ["agent.toml, line 4, agent.llm.type", "'lamacpp'", "did you mean 'llamacpp'"],
    ),
    "broken TOML": ('[agent]\ntype = "tools\n', ["agent.toml", "line 2"]),
    "unknown key": (
        '[agent]\ntype = "tools"\nllm = "echo"\nacitons = ["calculator"]\n',
        ["agent.toml, line 4, agent.acitons", "no argument 'acitons'"],
    ),
    "unknown key of a model": (
        '[agent]\ntype = "tools"\n[agent.llm]\ntype = "llamacpp"\ntemprature = 0\n',
        ["agent.toml, line 5, agent.llm.temprature", "temperature"],
    ),
    "a model file that is none": (
        '[agent]\ntype = "tools"\n[agent.llm]\ntype = "llamacpp"\npath = "agent.toml"\n',
        ["agent.toml, line 5, agent.llm.path", "not a GGUF file"],
    ),
    "a model file that is not there": (
        '[agent]\ntype = "tools"\n[agent.llm]\ntype = "llamacpp"\npath = "none.gguf"\n',
        ["agent.toml, line 5, agent.llm.path", "no model file 'none.gguf'"],
    ),
    "an action that raises": (
        """\
[agent]
type = "tools"
actions = ["calculator"]
[agent.llm]
type = "echo"
answers = [{tool_calls = [{name = "Calculator", arguments = {expression = "1/0"}}]}, "I cannot tell."]
""",
        ["the action 'Calculator' failed", "division by zero"],
    ),
}


def lagent(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LAGENT_CACHE": str(cwd)}
    command = [sys.executable, "-m", "lagent", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("case", CASES)
def test_one_clear_line(tmp_path: Path, case: str) -> None:
    text, expected = CASES[case]
    if text is not None:
        (tmp_path / "agent.toml").write_text(text)
    done = lagent("run", "agent.toml", "What is 37*412?", cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.startswith("lagent: ")
    assert done.stderr.count("\n") == 1
    for part in expected:
        assert part in done.stderr


def test_debug_shows_where(tmp_path: Path) -> None:
    done = lagent("run", "--debug", "agent.toml", "What is 37*412?", cwd=tmp_path)
    assert done.returncode != 0
    assert "Traceback" in done.stderr
