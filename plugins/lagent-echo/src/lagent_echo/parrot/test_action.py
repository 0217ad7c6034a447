"""What the action does, and what a model is told about it."""

import pytest

from lagent import registry
from lagent_echo.parrot.action import ParrotAction


def test_repeats() -> None:
    assert ParrotAction().run("hello", 3) == "hello hello hello"


@pytest.mark.parametrize("times", [0, 101])
def test_refuses_what_is_too_much(times: int) -> None:
    with pytest.raises(ValueError, match=f"not {times}"):
        ParrotAction().run("hello", times)


def test_is_found_by_name() -> None:
    assert registry.get("actions", "parrot") is ParrotAction
