"""Seeing what agents say to each other."""

from __future__ import annotations

import logging
from typing import Any

from lagent.hooks.manager import Hook

__all__ = ["MessageLogger"]


class MessageLogger(Hook):
    """Logs the messages that go into and out of agents and executors, at level INFO.

    Args:
        name: the logger to use; who handles its records is left to :mod:`logging`.
        add_file_handler: also write them to ``<name>.log`` in the working directory.
    """

    blocking = False

    def __init__(self, name: str = "lagent", add_file_handler: bool = False) -> None:
        self.logger = logging.getLogger(name)
        if add_file_handler:
            handler = logging.FileHandler(f"{name}.log", encoding="utf-8", delay=True)
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s - %(message)s"))
            self.logger.addHandler(handler)

    def before_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        for one in message:
            self._log(one, session_id)

    def after_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        self._log(message, session_id)

    def before_action(self, executor: Any, message: Any, session_id: Any) -> None:
        self._log(message, session_id)

    def after_action(self, executor: Any, message: Any, session_id: Any) -> None:
        self._log(message, session_id)

    def _log(self, message: Any, session_id: Any) -> None:
        self.logger.info("session id: %s, message sender: %s\n%s", session_id, message.sender, message.content)
