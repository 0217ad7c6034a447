"""What pip changes is seen: at the next start at once, in a running program after a refresh."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lagent import registry
from lagent.cli.new_plugin import write_plugin


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, to install into."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    registry.refresh()
    yield folder
    monkeypatch.undo()
    registry.refresh()


def install(plugin: Path, site: Path) -> None:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--upgrade",
        "--target",
        site,
        plugin,
    ]
    subprocess.run(pip, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})


def at_next_start(site: Path) -> list[str]:
    """The names of the hooks as a new program finds them."""
    program = "from lagent import registry; print(*registry.names('hooks'))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_an_entry_point_edited_at_the_same_version_is_seen(site: Path, tmp_path: Path) -> None:
    plugin = write_plugin("acme-same", "hook", tmp_path)
    assert "acme-same" not in registry.names("hooks")
    install(plugin, site)
    assert "acme-same" in at_next_start(site)
    assert "acme-same" not in registry.names("hooks")
    registry.refresh()
    assert registry.get("hooks", "acme-same").__name__ == "AcmeSameHook"

    project = plugin / "pyproject.toml"
    project.write_text(project.read_text().replace("acme-same = ", "renamed = "))
    install(plugin, site)
    names = at_next_start(site)
    assert "renamed" in names
    assert "acme-same" not in names
    registry.refresh()
    assert "renamed" in registry.names("hooks")
    assert "acme-same" not in registry.names("hooks")
