"""The shape of core: imports go one way, modules stay small, and importing it costs little."""

from __future__ import annotations

import ast
import functools
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

CORE = Path(__file__).parent.parent / "core" / "src" / "lagent"

LAYERS = [
    {"errors"},
    {"schema"},
    {"threads", "flow", "llms", "prompts", "actions", "memory", "aggregators"},
    {"hooks", "registry", "discovery", "catalogue"},
    {"agents"},
    {"cli", "testing", "__main__"},
]
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

MODULES = sorted(CORE.rglob("*.py"))


def part_of(file: Path) -> str:
    """The part of core that a module belongs to: the package or module right below ``lagent``."""
    return file.relative_to(CORE).parts[0].removesuffix(".py")


def imports(file: Path, *, everywhere: bool) -> Iterator[str]:
    """The names of the modules that a module imports: when it is imported itself or, ``everywhere``, at any time."""
    nodes: list[ast.AST] = list(ast.parse(file.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from names if node.module == "lagent" else [node.module or ""]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif everywhere or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes.extend(ast.iter_child_nodes(node))


@functools.cache
def lines_of_code(file: Path) -> int:
    """The lines of a module without documentation, comments and blank lines."""
    text = file.read_text(encoding="utf-8")
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_a_module_imports_only_from_its_own_layer_and_those_below() -> None:
    upwards = [
        f"{file.relative_to(CORE)} imports {name}"
        for file in MODULES
        for name in imports(file, everywhere=False)
        if name.startswith("lagent.") and RANK[name.split(".")[1]] > RANK[part_of(file)]
    ]
    assert not upwards


def test_the_parts_of_core_do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for file in MODULES:
        found = {name.split(".")[1] for name in imports(file, everywhere=False) if name.startswith("lagent.")}
        graph.setdefault(part_of(file), set()).update(found - {part_of(file)})
    list(TopologicalSorter(graph).static_order())  # raises on a circle


def test_the_plugin_libraries_have_one_place_each() -> None:
    users = {(name.split(".")[0], part_of(file)) for file in MODULES for name in imports(file, everywhere=True)}
    assert {user for user in users if user[0] in ("stevedore", "pluggy")} == {("stevedore", "registry"), ("pluggy", "hooks")}


def test_a_module_can_be_read_in_one_go() -> None:
    assert {str(file.relative_to(CORE)): lines for file in MODULES if (lines := lines_of_code(file)) > 350} == {}


def test_the_object_model_can_be_read_in_one_sitting() -> None:
    beside = {"actions", "catalogue", "cli", "discovery", "registry", "testing", "__main__"}
    assert sum(lines_of_code(file) for file in MODULES if part_of(file) not in beside) <= 3000


def test_importing_lagent_imports_no_plugin_and_no_sdk() -> None:
    public = "schema agents agents.aggregator memory hooks llms actions prompts.parsers registry"
    program = f"import {', '.join(f'lagent.{name}' for name in public.split())}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert {"lagent", "attrs"} <= loaded
    assert not loaded & {"openai", "pydantic", "xllamacpp", "vllm", "lmdeploy", "stevedore", "httpx", "rich", "prompt_toolkit"}
    assert not [name for name in loaded if name.startswith("lagent_")]
