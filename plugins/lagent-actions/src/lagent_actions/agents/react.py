"""ReAct: reason, act, observe, and so on until the answer is known (Yao et al., 2022, arXiv:2210.03629)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypedDict

from lagent.actions import ActionExecutor
from lagent.agents import VARIANTS, Agent, AsyncAgentMixin, AsyncStreamingAgentMixin, StreamingAgentMixin, call_agent
from lagent.aggregators import DefaultAggregator
from lagent.flow import Flow
from lagent.memory import Memory
from lagent.prompts.parsers import error_of
from lagent.registry import create
from lagent.schema import AgentMessage, SessionId
from lagent_actions.agents.preprocessor import ActionPreprocessor
from lagent_parsers.structured import JSONParser

__all__ = ["AsyncReAct", "AsyncStreamingReAct", "ReAct", "StreamingReAct"]

_TEMPLATE = """You can call these tools:
{action_info}

{output_format}"""

_OUTPUT_FORMAT = """Answer with JSON only. To call a tool, write
{call}

When you know the answer, or need no tool, write
{finish}"""


class _Action(TypedDict):
    name: str
    parameters: dict[str, Any]


class _Call(TypedDict):
    thought_process: str
    action: _Action


class _Finish(TypedDict):
    thought_process: str
    conclusion: str


def _concludes(message: AgentMessage) -> bool:
    """Whether a message has a ``conclusion``."""
    formatted = message.formatted
    return "conclusion" in message.content or (hasattr(formatted, "__contains__") and "conclusion" in formatted)


class ReAct(Agent):
    """Lets the model choose an action, runs it, shows it the result, and so on until it gives a ``conclusion``.

    The child ``select_agent`` asks the model and remembers every step; this agent remembers questions and answers.

    Args:
        llm: the model.
        actions: what it may call; see :class:`lagent.actions.ActionExecutor`.
        template: the system prompt: a text or :class:`lagent.prompts.PromptTemplate` with ``{action_info}`` and ``{output_format}``.
        memory, aggregator: of the child; see :class:`lagent.agents.Agent`.
        output_format: the parser; what it reads names an action, as :class:`ActionPreprocessor` says, or has a ``conclusion``.
        hooks: the hooks of the child and of the executor.
        finish_condition: whether a message of the model is the answer.
        max_turn: how often the model is asked at most.
        kwargs: see :class:`lagent.agents.Agent`.
    """

    def __init__(
        self,
        llm: Any,
        actions: Any,
        template: Any = None,
        memory: Any = Memory,
        output_format: Any = None,
        aggregator: Any = DefaultAggregator,
        hooks: Any = (ActionPreprocessor,),
        finish_condition: Callable[[AgentMessage], bool] = _concludes,
        max_turn: int = 5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.finish_condition = finish_condition
        self.max_turn = max_turn
        self.actions = ActionExecutor(actions, hooks=hooks)
        parser = JSONParser(_OUTPUT_FORMAT, call=_Call, finish=_Finish) if output_format is None else output_format
        parser = create("parsers", parser)
        self.select_agent = VARIANTS[self.asynchronous, self.streaming](
            llm,
            (template or _TEMPLATE).format(
                action_info=json.dumps(self.actions.description(), ensure_ascii=False), output_format=parser.format_instruction()
            ),
            memory=memory,
            output_format=parser,
            aggregator=aggregator,
            hooks=hooks,
        )

    def _steps(self, message: Any, session_id: SessionId, kwargs: dict[str, Any], emit: Any = None) -> Flow[AgentMessage]:
        for _ in range(self.max_turn):
            message = yield from call_agent(self.select_agent, message, session_id, kwargs)
            if (error := error_of(message.formatted)) is not None:
                message = AgentMessage(error, sender=type(self.actions).__name__)
            elif self.finish_condition(message):
                break
            else:
                message = yield from self.actions.steps(message, session_id)
            yield message
        answer: AgentMessage = message
        return answer


class AsyncReAct(AsyncAgentMixin, ReAct):
    """A :class:`ReAct` whose call is a coroutine."""


class StreamingReAct(StreamingAgentMixin, ReAct):
    """A :class:`ReAct` whose call gives an iterator: the model's text as it grows, and the results of actions."""


class AsyncStreamingReAct(AsyncStreamingAgentMixin, ReAct):
    """A :class:`ReAct` whose call gives an asynchronous iterator of what the streaming one gives."""
