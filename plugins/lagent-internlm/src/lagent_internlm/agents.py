"""Agents for InternLM models, which call plugins and write code for an interpreter."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from lagent.actions import ActionExecutor
from lagent.agents import VARIANTS, Agent, AsyncAgentMixin, AsyncStreamingAgentMixin, StreamingAgentMixin, call_agent
from lagent.errors import ConfigurationError
from lagent.flow import Flow
from lagent.memory import Memory
from lagent.prompts.parsers import ToolStatusCode
from lagent.registry import create
from lagent.schema import AgentMessage, AgentStatusCode, SessionId
from lagent_internlm.aggregator import InternLMToolAggregator
from lagent_internlm.hooks import InternLMActionProcessor
from lagent_parsers.tool import InterpreterParser, MixedToolParser, PluginParser

__all__ = [
    "API_PREFIX",
    "INTERPRETER_CN",
    "META_CN",
    "PLUGIN_CN",
    "AgentForInternLM",
    "AsyncAgentForInternLM",
    "AsyncMathCoder",
    "AsyncStreamingAgentForInternLM",
    "AsyncStreamingMathCoder",
    "MathCoder",
    "StreamingAgentForInternLM",
    "StreamingMathCoder",
    "get_plugin_prompt",
]

API_PREFIX = "A function of the tool '{tool_name}', which you can call. What it does:\n{description}"

META_CN = "在启用工具或代码解释器时，请按照问题的需要选择合适的一种来调用。"

INTERPRETER_CN = (
    "你可以在一个保持状态的 Jupyter 环境中执行 Python 代码：把代码发送给 python，它就会在该环境中运行并返回结果。"
    "它适合数据处理与统计、绘制图表、求解数学和物理问题、演示编程概念、分析文本、训练和展示机器学习模型，以及读写 CSV、JSON 等文件。"
)

PLUGIN_CN = "你可以使用下列工具：\n{prompt}\n信息足够时请直接回答，不要进行不必要的调用，也不要使用没有列出的工具。"

_MATH = (
    "Solve math problems by reasoning step by step and running Python code:\n"
    "- analyze the question, and write Jupyter code that solves it;\n"
    "- give the final result in LaTeX, in a '\\boxed{{}}', without units.\n"
)


def get_plugin_prompt(actions: Any, api_desc_template: str = "{description}") -> str:
    """The description of actions as JSON text, for a prompt; each API of a toolkit is described as ``Toolkit.api``.

    Args:
        actions: an action or a list of them, as :class:`ActionExecutor` takes them.
        api_desc_template: what becomes of the description of an API of a toolkit; may name ``{tool_name}`` and ``{description}``.
    """
    described = []
    for action in actions if isinstance(actions, list) else [actions]:
        action = create("actions", action)
        if not action.is_toolkit:
            described.append(action.description)
        for api in action.description.get("api_list", ()):
            text = api_desc_template.format(tool_name=action.name, description=api["description"])
            described.append({**api, "name": f"{action.name}.{api['name']}", "description": text})
    return json.dumps(described, ensure_ascii=False, indent=4)


def _answers(message: AgentMessage) -> bool:
    """Whether a message calls no tool."""
    return bool(message.formatted["status"] == ToolStatusCode.NO_TOOL)


class AgentForInternLM(Agent):
    """Asks an InternLM model, runs the plugins and the code that it calls for, and so on until it answers.

    The child ``agent`` asks the model and remembers every step; this agent remembers questions and answers.

    Args:
        llm: the model.
        plugins: the actions that the model may call.
        interpreter: the action that runs its code.
        template: the system prompt.
        memory, aggregator: of the child; see :class:`lagent.agents.Agent`.
        output_format: a tool parser; by default one for plugins and code, whose instruction describes the plugins.
        action_hooks: the hooks of the executors.
        finish_condition: whether a message of the model is the answer; by default, whether it calls no tool.
        max_turn: how often the model is asked at most.
        hooks: the hooks of the child.
        kwargs: see :class:`lagent.agents.Agent`.
    """

    def __init__(
        self,
        llm: Any,
        plugins: Any = None,
        interpreter: Any = None,
        template: Any = None,
        memory: Any = Memory,
        output_format: Any = None,
        aggregator: Any = InternLMToolAggregator,
        action_hooks: Any = (InternLMActionProcessor,),
        finish_condition: Callable[[AgentMessage], bool] = _answers,
        max_turn: int = 4,
        *,
        hooks: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plugin_executor = ActionExecutor(plugins, hooks=action_hooks) if plugins else None
        self.interpreter_executor = ActionExecutor(interpreter, hooks=action_hooks) if interpreter else None
        if not (plugins or interpreter):
            warnings.warn(f"{type(self).__name__} has neither plugins nor an interpreter: a call of one will fail", stacklevel=2)
        if output_format is None:
            described = get_plugin_prompt(list(self.plugin_executor.actions.values())) if self.plugin_executor else "[]"
            output_format = MixedToolParser(
                template=META_CN,
                parsers=[
                    *([PluginParser(template=PLUGIN_CN, prompt=described)] if plugins else []),
                    *([InterpreterParser(template=INTERPRETER_CN)] if interpreter else []),
                ],
            )
        self.agent = VARIANTS[self.asynchronous, self.streaming](
            llm, template, memory=memory, output_format=output_format, aggregator=aggregator, hooks=hooks
        )
        self.finish_condition = finish_condition
        self.max_turn = max_turn

    def _steps(self, message: Any, session_id: SessionId, kwargs: dict[str, Any], emit: Any = None) -> Flow[AgentMessage]:
        for _ in range(self.max_turn):
            message = yield from call_agent(self.agent, message, session_id, kwargs)
            if self.finish_condition(message):
                break
            if tool_type := message.formatted["tool_type"]:
                message = yield from self._run(message, tool_type, session_id)
                yield message
        answer: AgentMessage = message
        return answer

    def _run(self, message: AgentMessage, tool_type: str, session_id: SessionId) -> Flow[AgentMessage]:
        """The result of the tool that a message calls for."""
        executor: ActionExecutor | None = getattr(self, f"{tool_type}_executor", None)
        if executor is None:
            raise ConfigurationError(f"the model called for the tool {tool_type!r}, but {type(self).__name__} was given none")
        state = AgentStatusCode.CODE_RETURN if tool_type == "interpreter" else AgentStatusCode.PLUGIN_RETURN
        if message.formatted["status"] == ToolStatusCode.PARSING_ERROR:
            error = message.formatted.get("error") or "the call could not be read"
            return AgentMessage(error, sender=type(executor).__name__, stream_state=state)
        result: AgentMessage = yield from executor.steps(message, session_id)
        return result.model_copy(update={"stream_state": state})

    def get_steps(self, session_id: SessionId = 0) -> list[dict[str, Any]]:
        """What the model thought, which tools it called and what they gave: messages of the roles ``thought``, ``tool`` and
        ``environment``, the latter two with the ``name`` of the tool."""
        steps: list[dict[str, Any]] = []
        tool: dict[str, Any] = {}
        for message in self.agent.memory.get_memory(session_id) if self.agent.memory is not None else ():
            if message.sender == self.agent.name:
                parsed = message.formatted
                steps.append({"role": "thought", "content": parsed["thought"]})
                if parsed["tool_type"]:
                    tool = {"name": parsed["tool_type"]}
                    steps.append({"role": "tool", "content": parsed["action"], **tool})
            elif message.sender != "user":
                steps.append({"role": "environment", "content": message.content, **tool})
        return steps


class AsyncAgentForInternLM(AsyncAgentMixin, AgentForInternLM):
    """An :class:`AgentForInternLM` whose call is a coroutine."""


class StreamingAgentForInternLM(StreamingAgentMixin, AgentForInternLM):
    """An :class:`AgentForInternLM` whose call gives an iterator: the model's text as it grows, and the results of tools."""


class AsyncStreamingAgentForInternLM(AsyncStreamingAgentMixin, AgentForInternLM):
    """An :class:`AgentForInternLM` whose call gives an asynchronous iterator of what the streaming one gives."""


class MathCoder(AgentForInternLM):
    """Solves problems by reasoning and running Python code.

    The plain variants run code in a light session that lasts as long as the agent's session. The asynchronous ones, made for answering
    many problems at once, use a Jupyter kernel, which they close with the answer.

    Args:
        llm: the model.
        interpreter: the action that runs its code; by default as said above.
        output_format: the parser of the code; by default InternLM's, with an instruction for math problems.
        max_turn: how often the model is asked at most.
        template, memory, aggregator, action_hooks, finish_condition, kwargs: see :class:`AgentForInternLM`.
    """

    _INTERPRETER: ClassVar[dict[str, Any]] = {"type": "lagent-actions:ipython_light", "timeout": 20, "max_out_len": 8192}

    def __init__(
        self,
        llm: Any,
        interpreter: Any = None,
        template: Any = None,
        memory: Any = Memory,
        output_format: Any = None,
        aggregator: Any = InternLMToolAggregator,
        action_hooks: Any = (InternLMActionProcessor,),
        finish_condition: Callable[[AgentMessage], bool] = _answers,
        max_turn: int = 6,
        **kwargs: Any,
    ) -> None:
        kwargs.pop("plugins", None)  # accepted for the sake of lagent 0.5, which ignores it too
        super().__init__(
            llm,
            interpreter=self._INTERPRETER if interpreter is None else interpreter,
            template=template,
            memory=memory,
            output_format=InterpreterParser(template=_MATH) if output_format is None else output_format,
            aggregator=aggregator,
            action_hooks=action_hooks,
            finish_condition=finish_condition,
            max_turn=max_turn,
            **kwargs,
        )


class _AsyncMathCoder(MathCoder):
    _INTERPRETER = {"type": "lagent-actions:async_ipython"}  # noqa: RUF012

    def _steps(self, message: Any, session_id: SessionId, kwargs: dict[str, Any], emit: Any = None) -> Flow[AgentMessage]:
        try:
            return (yield from super()._steps(message, session_id, kwargs, emit))
        finally:
            assert self.interpreter_executor is not None
            yield from self.interpreter_executor._closing("close_session", session_id)


class AsyncMathCoder(AsyncAgentMixin, _AsyncMathCoder):
    """A :class:`MathCoder` whose call is a coroutine."""


class StreamingMathCoder(StreamingAgentMixin, MathCoder):
    """A :class:`MathCoder` whose call gives an iterator: the model's text as it grows, and what its code gave."""


class AsyncStreamingMathCoder(AsyncStreamingAgentMixin, _AsyncMathCoder):
    """A :class:`MathCoder` whose call gives an asynchronous iterator of what the streaming one gives."""
