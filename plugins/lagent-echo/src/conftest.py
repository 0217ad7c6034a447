"""Registers the components as the plugins that are made of them do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module

import pytest

from lagent import registry
from lagent.cli.new_plugin import KINDS


@pytest.fixture(autouse=True)
def parrot_is_installed() -> Iterator[None]:
    with ExitStack() as stack:
        for module, kind in KINDS.items():
            for group, name in kind.items():
                component = getattr(import_module(f"lagent_echo.parrot.{module}"), name)
                stack.enter_context(registry.register(group, "parrot", component))
        yield
