from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lagent.testing import Kit


@pytest.fixture
def caught() -> Callable[..., bool]:
    """Whether a test of a kit, with further fixtures and any of its parameters, fails for the component that a function makes."""

    def caught(kit: type[Kit], test: str, make: Callable[[], Any], *fixtures: Any) -> bool:
        method = getattr(kit(), test)
        values = [value for mark in getattr(method, "pytestmark", ()) if mark.name == "parametrize" for value in mark.args[1]]
        for arguments in [[value] for value in values] or [[]]:
            try:
                method(make(), *fixtures, *arguments)
            except pytest.skip.Exception:
                continue
            except (Exception, pytest.fail.Exception):
                return True
        return False

    return caught
