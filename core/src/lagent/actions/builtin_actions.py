"""The actions that end a conversation or stand for a call that names none."""

from __future__ import annotations

from typing import Any

from lagent.actions.base_action import BaseAction, tool_api
from lagent.actions.parser import BaseParser
from lagent.schema import ActionReturn, ActionStatusCode, ActionValidCode

__all__ = ["FinishAction", "InvalidAction", "NoAction"]


class InvalidAction(BaseAction):
    """Stands for a call of an action that does not exist: its result is an error for the model.

    Args:
        err_msg: the error.
    """

    def __init__(
        self,
        err_msg: str = "There is no such action, please check the action name.",
        description: dict[str, Any] | None = None,
        parser: Any = BaseParser,
    ) -> None:
        super().__init__(description, parser)
        self._err_msg = err_msg

    @tool_api
    def run(self, err_msg: str | None = None) -> ActionReturn:
        """Report the error.

        Args:
            err_msg: an error in place of the usual one.
        """
        return ActionReturn(
            args={"text": err_msg},
            type=self.name,
            errmsg=err_msg or self._err_msg,
            valid=ActionValidCode.INVALID,
            state=ActionStatusCode.API_ERROR,
        )


class NoAction(InvalidAction):
    """Stands for an answer that should have named an action and did not.

    Args:
        err_msg: the error.
    """

    def __init__(
        self,
        err_msg: str = "Please follow the format",
        description: dict[str, Any] | None = None,
        parser: Any = BaseParser,
    ) -> None:
        super().__init__(err_msg, description, parser)


class FinishAction(BaseAction):
    """Gives the final answer."""

    def __init__(self, description: dict[str, Any] | None = None, parser: Any = BaseParser) -> None:
        super().__init__(description, parser)

    @tool_api
    def run(self, response: str) -> ActionReturn:
        """Give the final answer.

        Args:
            response: the final answer.
        """
        return ActionReturn(
            args={"text": response},
            type=self.name,
            result=[{"type": "text", "content": response}],
            valid=ActionValidCode.FINISH,
            state=ActionStatusCode.SUCCESS,
        )
