"""What the README says, in an environment that holds the two wheels and what they require."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from .faulty_server import Server, answer

ROOT = Path(__file__).parents[2]
README = (ROOT / "lagent-openai" / "README.md").read_text(encoding="utf-8")


def run(*command: str | Path, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV", "OPENAI_API_KEY")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_three_lines_in_a_clean_environment(server: Server, tmp_path: Path) -> None:
    for folder in ("core", "lagent-openai"):
        run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, ROOT / folder, cwd=tmp_path)
    venv.create(tmp_path / "clean", with_pip=False, symlinks=os.name != "nt")
    python = tmp_path / "clean" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *tmp_path.glob("*.whl"), cwd=tmp_path)
    lines = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    assert len([line for line in lines.splitlines() if line]) == 3
    server.play(answer("Hello from the server"))
    printed = run(python, "-I", "-c", lines.replace("http://localhost:8000/v1", server.url), cwd=tmp_path)
    assert printed == "Hello from the server\n"
    assert server.requests[0].body["messages"] == [{"role": "user", "content": "Say hello"}]
