"""Hooks apart from agents."""

from __future__ import annotations

import inspect
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from lagent.agents import Agent, ToolAgent
from lagent.hooks import EVENTS, Hook, HookManager, MessageLogger, RemovableHandle, specs
from lagent.schema import ToolCall
from lagent_echo import EchoModel


def test_every_event_has_a_specification_that_documents_its_parameters() -> None:
    for event in EVENTS:
        function = getattr(specs, event)
        text = inspect.getdoc(function) or ""
        for name in inspect.signature(function).parameters:
            assert f"    {name}: " in text, event
        assert "Returns:" in text


def test_handles_take_hooks_out() -> None:
    manager = HookManager()
    handle = manager.register(MessageLogger())
    assert isinstance(handle, RemovableHandle)
    assert (len(manager), [type(hook) for hook in manager.values()]) == (1, [MessageLogger])
    handle.remove()
    assert len(manager) == 0


def test_modules_and_other_objects_may_be_hooks() -> None:
    seen: list[Any] = []
    hook = SimpleNamespace(before_agent=lambda agent, message, session_id: seen.append(message[0].content))
    Agent(EchoModel(), hooks=hook)("x")
    assert seen == ["x"]


def test_the_base_alone_is_no_hook() -> None:
    with pytest.raises(ValueError, match="Hook is no hook"):
        HookManager().register(Hook())


def test_message_logger(caplog: pytest.LogCaptureFixture, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "talk")
    logger = MessageLogger("talk", add_file_handler=True)
    agent = ToolAgent(
        EchoModel([[ToolCall("calculator", {"expression": "1+1"})], "two"]), ["calculator"], hooks=[logger], action_hooks=[logger]
    )
    agent("1+1?", session_id="s")
    texts = [record.getMessage() for record in caplog.records]
    assert texts[0] == "session id: s, message sender: user\n1+1?"
    assert texts[-1] == "session id: s, message sender: ToolAgent\ntwo"
    assert len(texts) == 4
    assert "1+1?" in (tmp_path / "talk.log").read_text()
    for handler in list(logger.logger.handlers):
        if isinstance(handler, logging.FileHandler):
            handler.close()
            logger.logger.removeHandler(handler)
