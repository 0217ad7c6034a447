"""Installed distributions for tests: real metadata folders, as pip writes them."""

from __future__ import annotations

import sys
from functools import partial
from importlib.metadata import distributions
from pathlib import Path

import pytest

from lagent import discovery


class Site:
    """A folder of installed distributions, the only one that is searched for components."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(
        self,
        name: str,
        groups: dict[str, dict[str, str]],
        source: str = "class Component: ...",
        *,
        version: str = "1.0",
        api: str | None = "1",
        metadata: str = "",
        within: Path | None = None,
    ) -> Path:
        """Install ``name`` with a module of that name (``fake_…`` where that would be ours); ``groups`` are its entry points by
        kind. Gives the metadata folder."""
        within = within or self.path
        module = name.replace("-", "_").replace("lagent_", "fake_")
        folder = within / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}")
        sections = {f"lagent.{kind}": names for kind, names in groups.items()}
        if api is not None:
            sections["lagent.plugin_api"] = {api: module}
        lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in sections.items()]
        (folder / "entry_points.txt").write_text("\n".join(lines))
        (within / f"{module}.py").write_text(source)
        discovery.refresh()
        return folder


@pytest.fixture
def site(tmp_path, monkeypatch):
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(path)
    monkeypatch.setattr(discovery, "distributions", partial(distributions, path=[str(path)]))
    monkeypatch.delenv("LAGENT_PLUGINS", raising=False)
    monkeypatch.delenv("LAGENT_DISABLE_PLUGINS", raising=False)
    discovery.refresh()
    yield Site(path)
    monkeypatch.undo()
    discovery.refresh()
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(path)):
            del sys.modules[name]
