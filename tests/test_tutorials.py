"""The tutorials for plugin authors work: their files, put into a new plugin, pass their tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from lagent.cli.new_plugin import KINDS, write_plugin

TUTORIALS = Path(__file__).parent.parent / "docs" / "plugins"
FILE = re.compile(r"^`([\w/.]+)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    lagent new-plugin ([\w-]+) --kind (\w+)$", re.MULTILINE)


def test_what_the_tutorials_write_passes_its_tests(tmp_path: Path) -> None:
    folders = []
    for kind in KINDS:
        text = (TUTORIALS / f"{kind}.md").read_text(encoding="utf-8")
        (command,) = COMMAND.findall(text)
        assert command[1] == kind
        folder = write_plugin(*command, tmp_path)
        files = dict(FILE.findall(text))
        assert {f"tests/test_{kind}.py", f"src/{command[0].replace('-', '_')}/{kind}.py"} <= files.keys()
        for path, content in files.items():
            assert (folder / path).exists(), f"{path} is no file of a new plugin"
            (folder / path).write_text(content, encoding="utf-8")
        folders.append(folder)
    tests = [folder / "tests" for folder in folders]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "--import-mode=importlib", "-c", folders[0] / "pyproject.toml"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / "src") for folder in folders)},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
