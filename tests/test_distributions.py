"""The distributions as users get them: built, and installed where nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DISTRIBUTIONS = sorted(
    file.parent.relative_to(ROOT) for file in [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
)
IN_CLEAN_ENVIRONMENT = ["core", "plugins/lagent-echo", "plugins/lagent-sqlite"]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of every distribution and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("dist")
    for distribution in DISTRIBUTIONS:
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT / distribution)
    return folder


@pytest.fixture(scope="session")
def clean_python(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds core's wheel and a few others, what they require, and nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wheels = [next(dist.glob(f"{name_of(ROOT / path).replace('-', '_')}-*.whl")) for path in IN_CLEAN_ENVIRONMENT]
    install = [f"{wheel}[cli]" if wheel.name.startswith("lagent_core") else str(wheel) for wheel in wheels]
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *install)
    return python


def name_of(distribution: Path) -> str:
    """The name of the distribution in a folder."""
    return "lagent-core" if distribution.name == "core" else distribution.name


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command that has to succeed, without the settings of this environment, and give its standard output."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", DISTRIBUTIONS, ids=str)
def test_wheel_and_sdist_hold_the_package_and_its_type_marker(dist: Path, path: Path) -> None:
    name = name_of(ROOT / path).replace("-", "_")
    (wheel,), (sdist,) = dist.glob(f"{name}-*.whl"), dist.glob(f"{name}-*.tar.gz")
    package = "lagent" if path == Path("core") else name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    sources = {str(file.relative_to(ROOT / path / "src")) for file in (ROOT / path / "src" / package).rglob("*.py")}
    assert sources <= set(names)
    assert {file.split("/")[0] for file in names} == {package, wheel.name.rsplit("-", 3)[0] + ".dist-info"}
    assert f"{package}/py.typed" in names
    with tarfile.open(sdist) as archive:
        assert any(file.endswith("/README.md") for file in archive.getnames())


def lagent(python: Path, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-I", "-m", "lagent", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_installed_components_are_listed(clean_python: Path, tmp_path: Path) -> None:
    done = lagent(clean_python, "plugins", "--json", cwd=tmp_path)
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert [(row["name"], row["distribution"]) for row in found["llms"]] == [("echo", "lagent-echo")]
    assert ("sqlite", "lagent-sqlite") in [(row["name"], row["distribution"]) for row in found["memory"]]
    assert {row["version"] for rows in found.values() for row in rows} == {"0.6.0"}


def test_an_agent_answers(clean_python: Path, tmp_path: Path) -> None:
    call = {"content": "", "tool_calls": [{"name": "Calculator", "arguments": {"expression": "37*412"}}]}
    llm = {"type": "echo", "answers": [call, "37*412 is 15244."]}
    agent = {"type": "tools", "actions": ["calculator"], "llm": llm, "memory": {"type": "sqlite", "path": "memory.db"}}
    (tmp_path / "agent.json").write_text(json.dumps({"agent": agent}))
    done = lagent(clean_python, "run", "--json", "agent.json", "What is 37*412?", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    contents = [json.loads(line)["content"] for line in done.stdout.splitlines()]
    assert contents[-2:] == ["15244", "37*412 is 15244."]
    assert (tmp_path / "memory.db").exists()


def test_the_default_agent_says_what_to_install(clean_python: Path, tmp_path: Path) -> None:
    done = lagent(clean_python, "run", "What is 37*412?", cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.endswith("pip install lagent-llamacpp\n")
    assert done.stderr.count("\n") == 1


def test_core_alone_is_small(clean_python: Path) -> None:
    installed = json.loads(run(clean_python, "-c", DEPENDENCIES))
    assert installed == ["attrs", "cattrs", "pluggy", "stevedore"]


DEPENDENCIES = """
import json, re
from importlib.metadata import requires
print(json.dumps(sorted(re.match(r"[\\w-]+", r)[0] for r in requires("lagent-core") if "extra ==" not in r)))
"""


# Third parties ---------------------------------------------------------------------------------------------------


@pytest.fixture
def third_parties(clean_python: Path, tmp_path: Path) -> Iterator[None]:
    """Two distributions made by ``lagent new-plugin`` are installed from their wheels in the clean environment, for one test."""
    plugins = {"lagent-acme": "llm", "acme-lists": "parser"}
    for name, kind in plugins.items():
        done = lagent(clean_python, "new-plugin", name, "--kind", kind, "--license", "MIT", "--author", "Acme", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / "dist", tmp_path / name)
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        clean_python,
        "install",
        "--quiet",
        "--no-deps",
        *(tmp_path / "dist").glob("*.whl"),
    )
    yield
    run(sys.executable, "-m", "pip", "--python", clean_python, "uninstall", "--quiet", "--yes", *plugins)


@pytest.mark.usefixtures("third_parties")
def test_plugins_of_third_parties_are_found_and_run(clean_python: Path, tmp_path: Path) -> None:
    found = json.loads(lagent(clean_python, "plugins", "--json", "llms", "parsers", cwd=tmp_path).stdout)
    rows = {(row["name"], row["distribution"], row["version"]) for kind in found.values() for row in kind}
    assert {("acme", "lagent-acme", "0.1.0"), ("acme-lists", "acme-lists", "0.1.0")} <= rows

    doctor = lagent(clean_python, "doctor", "lagent-acme", "acme-lists", "--json", cwd=tmp_path)
    assert (doctor.returncode, json.loads(doctor.stdout)["findings"]) == (0, [])

    (tmp_path / "agent.toml").write_text('[agent]\ntype = "agent"\noutput_format = "acme-lists"\n[agent.llm]\ntype = "acme"\n')
    done = lagent(clean_python, "run", "--json", "agent.toml", "Birds:\n- parrot\n- lyrebird", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["content"] == "Birds:\n- parrot\n- lyrebird"
    assert (answer["formatted"]["content"], answer["formatted"]["value"]) == ("Birds:", ["parrot", "lyrebird"])
