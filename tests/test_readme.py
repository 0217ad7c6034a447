"""The README is true: every block of code in it is run, and prints what stands in the block of text below it.

A comment before each block says how: ``run`` as a program; ``engine`` as one that needs the embedded model; ``agent`` as a configuration
file; ``vllm`` as a program where vLLM is installed, with a small model in the place of the one named; ``checkout`` as a shell command in a fresh clone, with a fresh home directory, beside those that stand before it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from lagent.cli.config import load_agent
from lagent_engines.environments import engine_python, output_in, small_model

ROOT = Path(__file__).parent.parent


@define
class Block:
    """A block of code: how to run it, its language, where it stands, and the output it promises."""

    how: str
    language: str
    line: int
    code: str
    output: str | None


def blocks() -> list[Block]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found: list[Block] = []
    for match in re.finditer(r"(?:<!-- test: (\w+) -->\n)?```(\w+)\n(.*?)```\n", text, re.DOTALL):
        how, language, code = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        if language == "text":
            found[-1].output = code
        else:
            found.append(Block(how, language, line, code, None))
    return found


BLOCKS = blocks()


def of(how: str) -> Any:
    chosen = [block for block in BLOCKS if block.how == how]
    return pytest.mark.parametrize("block", chosen, ids=lambda block: f"line {block.line}")


def python(block: Block, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", block.code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert block.output is None or done.stdout == block.output


def test_every_block_says_how_it_is_tested() -> None:
    assert {(block.how, block.language) for block in BLOCKS} == {
        ("checkout", "sh"),
        ("run", "python"),
        ("engine", "python"),
        ("vllm", "python"),
        ("agent", "toml"),
    }


@of("run")
def test_programs(block: Block, tmp_path: Path) -> None:
    python(block, tmp_path)


@pytest.mark.engine
@of("engine")
def test_programs_on_the_embedded_model(block: Block, tmp_path: Path) -> None:
    python(block, tmp_path)


@pytest.mark.engine
@pytest.mark.timeout(1200)
@of("vllm")
def test_programs_on_vllm(block: Block, tmp_path: Path) -> None:
    engine = engine_python("vllm")
    if engine is None:
        pytest.skip("LAGENT_VLLM_PYTHON does not name the interpreter of an environment with vLLM")
    small = {"max_model_len": 2048, "kv_cache_memory_bytes": 2**28, "enforce_eager": True}
    named = '"path": "Qwen/Qwen3-8B"'
    assert named in block.code
    script = tmp_path / "program.py"
    script.write_text(block.code.replace(named, f'"path": {small_model(engine)!r}, "temperature": 0.0, "vllm_cfg": {small}'))
    settings = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    assert "Paris" in output_in(engine, script, variables=settings)


@of("agent")
def test_configuration_files(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.toml").write_text(block.code, encoding="utf-8")
    assert [message.content for message in load_agent("agent.toml")("hello")][-1] == "I am a script."


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of what is committed, beside an environment for the commands that are not the checkout's own."""
    folder = tmp_path_factory.mktemp("newcomer")
    subprocess.run(["git", "clone", "--quiet", ROOT, folder / "lagent"], check=True)
    venv.create(folder / "env", with_pip=True, symlinks=os.name != "nt")
    (folder / "home").mkdir()
    return folder


@pytest.mark.engine
@pytest.mark.timeout(1200)
@of("checkout")
def test_commands_in_a_fresh_clone(block: Block, checkout: Path) -> None:
    path = f"{checkout / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("VIRTUAL_ENV", "PYTHONPATH", "LAGENT_CACHE", "XDG_CACHE_HOME")
    } | {"HOME": str(checkout / "home"), "PATH": path}
    done = subprocess.run(
        ["sh", "-ec", block.code], cwd=checkout / "lagent", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if "quickstart" in block.code:
        assert "15244" in done.stdout
        assert "→ Calculator {'expression': '37*412'}" in done.stdout
