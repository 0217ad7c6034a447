"""ReWOO: plan all calls of tools at once, run them, and answer from their results (Xu et al., 2023, arXiv:2305.18323)."""

from __future__ import annotations

import json
import re
from typing import Any

from attrs import define

from lagent.actions import ActionExecutor
from lagent.agents import VARIANTS, Agent, AsyncAgentMixin, AsyncStreamingAgentMixin, StreamingAgentMixin, call_agent
from lagent.flow import Flow
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage, FunctionCall, SessionId

__all__ = ["AsyncReWOO", "AsyncStreamingReWOO", "ReWOO", "StreamingReWOO"]

_PLANNER = """Make a plan for the user's task, step by step. Each step calls one tool, whose result becomes evidence that later steps \
may use by its name:

Plan: what this step is for
#E1 = tool[{{"parameter": "value"}}]
Plan: what this step is for
#E2 = tool[{{"parameter": "a value that uses #E1"}}]

The tools and their parameters:
{action_info}

Write the plan and nothing else. Do not carry it out."""

_SOLVER = """Answer the task from the plan and the evidence below, without further tools; mind that evidence may be irrelevant or wrong.

Task: {task}

{evidence}

Now answer the task."""

_STEP = re.compile(
    r"^[ \t]*(?:Plan:(?P<plan>.*)|#?(?P<name>E\d+)\s*=\s*(?P<tool>[^\[\n]+?)\s*\[(?P<input>.*)\][ \t]*)$", re.MULTILINE
)


@define
class _Step:
    plan: str
    name: str
    tool: str
    input: str


class ReWOO(Agent):
    """Lets the model plan which actions to call, runs them in order, and lets it answer from the results: two calls of the model.

    The children ``planner`` and ``solver`` ask the model; this agent remembers questions and answers.

    Args:
        llm: the model of both.
        actions: what the plan may call; see :class:`lagent.actions.ActionExecutor`.
        planner_template: the system prompt of the planner, with ``{action_info}``.
        solver_template: what the solver is asked, with ``{task}`` and ``{evidence}``.
        action_hooks: the hooks of the executor.
        max_turn: how often the planner is asked at most until there is a step in its plan that can be read.
        kwargs: see :class:`lagent.agents.Agent`.
    """

    def __init__(
        self,
        llm: Any,
        actions: Any,
        planner_template: str = _PLANNER,
        solver_template: str = _SOLVER,
        action_hooks: Any = (),
        max_turn: int = 2,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.executor = ActionExecutor(actions, hooks=action_hooks)
        described = "\n".join(json.dumps(each, ensure_ascii=False) for each in self.executor.description())
        caller = VARIANTS[self.asynchronous, self.streaming]
        self.planner = caller(llm, planner_template.format(action_info=described), name="planner")
        self.solver = caller(llm, name="solver")
        self.solver_template = solver_template
        self.max_turn = max_turn

    def _steps(self, message: Any, session_id: SessionId, kwargs: dict[str, Any], emit: Any = None) -> Flow[AgentMessage]:
        task = "\n".join(str(each.content) for each in message)
        for _ in range(self.max_turn):
            plan: AgentMessage = yield from call_agent(self.planner, message, session_id, kwargs)
            if steps := _read(str(plan.content)):
                break
            message = AgentMessage("This plan has no step of the form #E1 = tool[{...}]. Write it again, in that form.")
        evidence: dict[str, str] = {}
        for step in steps:
            result = yield from self._result(step, evidence, session_id)
            evidence[step.name] = str(result.content)
            yield result
        shown = "\n".join(
            f"Plan: {step.plan}\n#{step.name} = {step.tool}[{step.input}]\nEvidence: {evidence[step.name]}" for step in steps
        )
        question = AgentMessage(self.solver_template.format(task=task, evidence=shown or plan.content))
        answer: AgentMessage = yield from call_agent(self.solver, question, session_id, kwargs)
        return answer.model_copy(update={"sender": self.name})

    def _result(self, step: _Step, evidence: dict[str, str], session_id: SessionId) -> Flow[AgentMessage]:
        """Run a step, with the evidence so far in place of its names."""
        parameters = _fill(_parameters(step.input), evidence)
        request = AgentMessage(FunctionCall(step.tool, parameters), sender=self.name or "")
        reply: AgentMessage = yield from self.executor.steps(request, session_id)
        content = reply.content
        if isinstance(content, ActionReturn):
            content = content.format_result() if content.state == ActionStatusCode.SUCCESS else content.errmsg
        return reply.model_copy(update={"content": content})


def _read(text: str) -> list[_Step]:
    """The steps of a plan."""
    steps, plan = [], ""
    for match in _STEP.finditer(text):
        if match["plan"] is not None:
            plan = match["plan"].strip()
        else:
            steps.append(_Step(plan, match["name"], match["tool"].strip(), match["input"].strip()))
    return steps


def _parameters(text: str) -> Any:
    """The input of a step: a JSON object, or plain text for the only parameter of an action."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip("\"'")


def _fill(value: Any, evidence: dict[str, str]) -> Any:
    if isinstance(value, str):
        return re.sub(r"#(E\d+)", lambda match: evidence.get(match[1], match[0]), value)
    if isinstance(value, dict):
        return {key: _fill(item, evidence) for key, item in value.items()}
    return [_fill(item, evidence) for item in value] if isinstance(value, list) else value


class AsyncReWOO(AsyncAgentMixin, ReWOO):
    """A :class:`ReWOO` whose call is a coroutine."""


class StreamingReWOO(StreamingAgentMixin, ReWOO):
    """A :class:`ReWOO` whose call gives an iterator: the model's text as it grows, and the results of actions."""


class AsyncStreamingReWOO(AsyncStreamingAgentMixin, ReWOO):
    """A :class:`ReWOO` whose call gives an asynchronous iterator of what the streaming one gives."""
