"""What ``lagent new-plugin`` writes is a working distribution, of whatever kind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lagent.cli import main
from lagent.cli.new_plugin import KINDS, LICENSES, write_plugin
from lagent.errors import ConfigurationError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


def test_a_new_plugin_of_every_kind_installs_and_is_found(tmp_path: Path) -> None:
    """The rest of its tests are those of the example in lagent-echo, which run there."""
    folders = [write_plugin(f"acme-{kind}", kind, tmp_path) for kind in KINDS]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", tmp_path / "site"]
    subprocess.run([*pip, *folders], check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    tests = [folder / "tests" for folder in folders]
    options = [
        "-v",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "-k",
        "found_by_name",
        "-c",
        folders[0] / "pyproject.toml",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"test_(\w+)\.py::test_is_found_by_name PASSED", done.stdout)
    assert sorted(passed) == sorted(KINDS)


@pytest.mark.parametrize("license_", LICENSES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_of_it_is_filled_in(tmp_path: Path, kind: str, license_: str) -> None:
    folder = write_plugin("Lagent_Big.Parrot2", kind, tmp_path, license_, "A. & B.")
    assert folder == tmp_path / "lagent-big-parrot2"
    files = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file()}
    assert set(files) == {
        ".github/workflows/test.yml",
        ".gitignore",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/lagent_big_parrot2/__init__.py",
        f"src/lagent_big_parrot2/{kind}.py",
        "src/lagent_big_parrot2/py.typed",
        f"tests/test_{kind}.py",
    }
    for path, text in files.items():
        assert not re.search(r"@\w+@|lagent_echo\.parrot", text), path
        assert not re.search(r"parrot(?!2)", text, re.IGNORECASE), path
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert (project["name"], project["license"]) == ("lagent-big-parrot2", license_)
    assert license_ == "Apache-2.0" or "A. & B." in files["LICENSE"]
    for group in KINDS[kind]:
        assert list(project["entry-points"][f"lagent.{group}"]) == ["big-parrot2"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("1acme", "cannot be the name"),
        ("ac me", "cannot be the name"),
        ("../acme", "cannot be the name"),
        ("lambda", "cannot be the name"),
        ("json", "a package 'json' already"),
        ("lagent", "a package 'lagent' already"),
        ("acme", "is there already"),
        ("vllm", "exists already"),
        ("my.echo", None),
        ("lagent.echo", "already"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path, name: str, message: str | None) -> None:
    (tmp_path / "acme").mkdir()
    if message is None:
        assert write_plugin(name, "llm", tmp_path).is_dir()
        return
    with pytest.raises(ConfigurationError, match=message):
        write_plugin(name, "llm", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["acme"]


def test_the_command_says_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-plugin", "acme", "--kind", "hook", "--into", str(tmp_path)]) == 0
    assert f"cd {tmp_path / 'acme'}" in capsys.readouterr().out
    assert main(["new-plugin", "acme", "--kind", "hook", "--into", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("lagent: ")
