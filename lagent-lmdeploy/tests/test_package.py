"""What the package does without LMDeploy: import quickly, and say what is missing."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lagent_lmdeploy
from lagent import llms
from lagent.errors import ModelConfigurationError
from lagent.registry import create

from . import readme


def test_import_loads_nothing_heavy() -> None:
    code = "import lagent_lmdeploy, sys; print([name for name in ('lmdeploy', 'torch', 'transformers', 'openai') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", lagent_lmdeploy.__all__)
def test_classes_are_found(name: str) -> None:
    assert getattr(llms, name) is getattr(lagent_lmdeploy, name)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = lagent_lmdeploy.no_such_name


def test_lmdeploy_that_is_not_installed() -> None:
    if any(importlib.metadata.distributions(name="lmdeploy")):
        pytest.skip("LMDeploy is installed")
    for kind in ("llms", "async_llms"):
        with pytest.raises(ModelConfigurationError, match="pip install 'lmdeploy"):
            create(kind, {"type": "lmdeploy", "path": "a model"})


@pytest.mark.parametrize("version", ["0.17.1", "0.19.0", "1.0"])
def test_lmdeploy_of_another_version(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / f"lmdeploy-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lmdeploy\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelConfigurationError, match=rf"LMDeploy {version} is installed.*0\.18"):
        lagent_lmdeploy.LMDeployPipeline("a model")


def test_readme_has_the_blocks_that_are_run() -> None:
    assert [re.findall(r"LMDeploy\w+|lmdeploy", block)[0] for block in readme.blocks()] == [
        "lmdeploy",
        "LMDeployPipeline",
        "LMDeployServer",
        "LMDeployClient",
    ]
