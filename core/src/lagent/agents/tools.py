"""An agent that calls tools until it can answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lagent.actions import ActionExecutor, content_parts
from lagent.agents.agent import Agent
from lagent.agents.variants import VARIANTS, AsyncAgentMixin, AsyncStreamingAgentMixin, StreamingAgentMixin, call_agent
from lagent.aggregators import DefaultAggregator
from lagent.errors import ConfigurationError
from lagent.flow import Flow, Gather
from lagent.memory import Memory
from lagent.schema import (
    ActionReturn,
    ActionStatusCode,
    ActionValidCode,
    AgentMessage,
    AgentStatusCode,
    FunctionCall,
    SessionId,
    ToolCall,
    tool_calls_of,
)

__all__ = ["AsyncStreamingToolAgent", "AsyncToolAgent", "StreamingToolAgent", "ToolAgent"]


class ToolAgent(Agent):
    """Asks its model, runs the tools that the model calls, gives the results back, and so on until the model answers.

    The child ``agent`` asks the model and remembers every step; this agent remembers questions and answers. Calls of one message
    run at the same time. What goes wrong in a tool goes back to the model as text.

    Args:
        llm: the model. It gets the tools itself if it can take them, else ``output_format`` describes and reads them.
        actions: the tools: registry names, actions, plain functions, or an :class:`ActionExecutor`.
        template: the system prompt.
        memory, output_format, aggregator: of the agent that asks the model; see :class:`Agent`.
        max_turn: how often the model is asked at most; the last time it is asked to answer without tools.
        finish_condition: whether a message of the model is the answer; by default, whether it calls no tool.
        on_parse_error, parse_retries: see :class:`Agent`.
        action_hooks: hooks of the executor.
        kwargs: see :class:`Agent`.

    Raises:
        ConfigurationError: an argument cannot be used.
    """

    def __init__(
        self,
        llm: Any = None,
        actions: Any = (),
        template: Any = None,
        memory: Any = Memory,
        output_format: Any = None,
        aggregator: Any = DefaultAggregator,
        max_turn: int = 8,
        finish_condition: Callable[[AgentMessage], bool] | None = None,
        *,
        system_prompt: Any = None,
        on_parse_error: Any = "retry",
        parse_retries: int = 2,
        action_hooks: Any = None,
        **kwargs: Any,
    ) -> None:
        if max_turn < 1:
            raise ConfigurationError(f"max_turn must be at least 1, not {max_turn}")
        super().__init__(memory=memory, **kwargs)
        self.executor = actions if isinstance(actions, ActionExecutor) else ActionExecutor(actions, hooks=action_hooks)
        self.agent = VARIANTS[self.asynchronous, self.streaming](
            llm,
            template,
            memory=memory,
            output_format=output_format,
            aggregator=aggregator,
            name=self.name,
            system_prompt=system_prompt,
            on_parse_error=on_parse_error,
            parse_retries=parse_retries,
        )
        self.max_turn = max_turn
        self.finish_condition = finish_condition or (lambda message: not tool_calls_of(message))

    def _steps(self, message: Any, session_id: SessionId, kwargs: dict[str, Any], emit: Any = None) -> Flow[AgentMessage]:
        options = dict(kwargs)
        if tools := self.executor.tools():
            options["tools"] = tools
        for turn in range(1, self.max_turn + 1):
            if tools and turn == self.max_turn and turn > 1:
                options["tool_choice"] = "none"
            answer: AgentMessage = yield from call_agent(self.agent, message, session_id, options)
            calls = tool_calls_of(answer)
            if not calls or turn == self.max_turn or self.finish_condition(answer):
                break
            for call in calls:
                yield self._announce(call)
            message = yield Gather([self._result(call, session_id) for call in calls])
            yield from message
            for result in message:
                if getattr(result.formatted, "valid", None) is ActionValidCode.FINISH:
                    return AgentMessage(result.content, sender=self.name or "", formatted=result.formatted)
        return answer

    def _announce(self, call: ToolCall) -> AgentMessage:
        return AgentMessage(
            FunctionCall(call.name, call.arguments),
            sender=self.name or "",
            receiver=type(self.executor).__name__,
            type="tool",
            extra_info={"tool_call_id": call.id, "name": call.name},
            stream_state=AgentStatusCode.PLUGIN_START,
        )

    def _result(self, call: ToolCall, session_id: SessionId) -> Flow[AgentMessage]:
        """Run a tool call; the message holds the result as the model sees it, and the :class:`ActionReturn` as ``formatted``."""
        request = self._announce(call)
        reply: AgentMessage = yield from self.executor.steps(request, session_id)
        return AgentMessage(
            _text(reply.content),
            sender=reply.sender,
            formatted=reply.content if isinstance(reply.content, (ActionReturn, Mapping)) else None,
            extra_info=request.extra_info,
            type="tool",
            receiver=self.name,
            stream_state=AgentStatusCode.PLUGIN_RETURN,
        )


def _text(content: Any) -> Any:
    """An action's result for the model: text, or content parts if there is more than text in it."""
    if not isinstance(content, ActionReturn):
        return content
    if content.state != ActionStatusCode.SUCCESS:
        return str(content.errmsg)
    if all(part["type"] == "text" for part in content.result or ()):
        return content.format_result()
    return content_parts(content.result or ())


class AsyncToolAgent(AsyncAgentMixin, ToolAgent):
    """A :class:`ToolAgent` whose call is a coroutine."""


class StreamingToolAgent(StreamingAgentMixin, ToolAgent):
    """A :class:`ToolAgent` whose call gives an iterator: text as it grows, tool calls as they start, their results."""


class AsyncStreamingToolAgent(AsyncStreamingAgentMixin, ToolAgent):
    """A :class:`ToolAgent` whose call gives an asynchronous iterator: text as it grows, tool calls as they start, their results."""
