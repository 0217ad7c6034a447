"""Tool calls for models whose chat template knows no tools, down to a hundred million parameters.

Three things make such a model usable. The tool is chosen by how much more likely its name becomes after this question than it is after
the questions of the examples on average; the raw probability mostly tells which name the model likes (Zhao et al., "Calibrate Before
Use", 2021). The arguments are written after examples of that one tool, under a grammar made of its JSON schema. And prompts are plain
transcripts, which small models follow better than chat formats. All text is the model's own: nothing is computed or copied for it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from statistics import fmean
from typing import Any

from lagent.errors import ModelConfigurationError
from lagent.flow import Flow
from lagent.llms import ModelRequest
from lagent.schema import ModelChunk, ToolCallDelta, Usage
from lagent_llamacpp.engine import Engine
from lagent_llamacpp.transcript import ANSWER, CALL, NO_TOOL, Step, Tool, Turn, asked, call_head, choice, turns_of, written

__all__ = ["GuidedTools", "checked_choice"]

Body = dict[str, Any]

_NO_EXAMPLES = Turn("How old is Anna?", [Step('{"name": "age", "arguments": {"person": "Anna"}}', "31")], "Anna is 31 years old.")
"""Shows the form where a tool has no examples of its own."""


class GuidedTools:
    """Answers requests that have tools."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._baselines: dict[str, dict[str, float]] = {}

    def respond(self, request: ModelRequest, wanted: str, body: Body) -> Flow[ModelChunk]:
        """Emit the chunks of a tool call or of the answer.

        Args:
            request: the request, with tools.
            wanted: what :func:`checked_choice` made of its ``tool_choice``.
            body: its sampling parameters for the engine.

        Raises:
            ModelConfigurationError: a tool is not described by a function schema.
        """
        tools = {tool.name: tool for tool in map(Tool.of, request.tools or ())}
        system, turns = turns_of(request.messages)
        question, steps = turns[-1].question, turns[-1].steps
        called = [tool for tool in tools.values() if any(step.call.startswith(call_head(tool.name)) for step in steps)]
        so_far = _prompt(system, called, turns) if steps else None
        usage = Usage(cached_tokens=0)
        name = yield from self._choose(wanted, tools, question, so_far, usage)
        if name is not None:
            prompt = _prompt(system, [tools[name]], turns)
            return (yield from self._call(tools[name], prompt, body, request.request_id, usage))
        if so_far is not None:
            body = {**body, "prompt": so_far + ANSWER, "stop": [*body.get("stop", ()), "\n"]}
            return (yield from self._engine.emit("text", body, usage, strip=True))
        return (yield from self._engine.emit("chat", {**body, "messages": _plain(request.messages)}, usage))

    def _choose(self, wanted: str, tools: dict[str, Tool], question: str, so_far: str | None, usage: Usage) -> Flow[str | None]:
        """The tool to call, ``None`` to answer; ``so_far`` is the transcript if a tool was called for this question."""
        if wanted in tools:
            return wanted
        if wanted == "none":
            return None
        if wanted != "required" and so_far is not None:
            scores = yield from self._scores(so_far, (CALL, ANSWER), usage)
            if scores[ANSWER] >= scores[CALL]:
                return None
        options = list(tools) if wanted == "required" or so_far is not None else [NO_TOOL, *tools]
        if len(options) == 1:
            return options[0]
        questions, texts = choice(list(tools.values()))
        gain = dict.fromkeys(questions, 0.0)
        for shown in texts:
            if shown not in self._baselines:
                self._baselines[shown] = yield from self._baseline(questions, shown, usage)
            scores = yield from self._named(shown, question, questions, usage)
            for name in gain:
                gain[name] += scores[name] - self._baselines[shown][name]
        best = max(options, key=gain.__getitem__)
        return None if best == NO_TOOL else best

    def _baseline(self, questions: dict[str, list[str]], shown: str, usage: Usage) -> Flow[dict[str, float]]:
        """The mean log-probability of each name over the questions of the examples, every tool counting the same."""
        groups = []
        for group in questions.values():
            scored = []
            for question in group:
                scored.append((yield from self._named(shown, question, questions, usage)))
            groups.append({name: fmean(scores[name] for scores in scored) for name in questions})
        return {name: fmean(group[name] for group in groups) for name in questions}

    def _named(self, shown: str, question: str, names: Collection[str], usage: Usage) -> Flow[dict[str, float]]:
        scores = yield from self._scores(shown + asked(question), [f" {name}\n" for name in names], usage)
        return {name: scores[f" {name}\n"] for name in names}

    def _scores(self, prompt: str, options: Collection[str], usage: Usage) -> Flow[dict[str, float]]:
        """How likely the model goes on with each option: the log-probability of the tokens that tell it from the others."""
        body = {"prompt": prompt, "max_tokens": 1, "n_probs": 200, "temperature": 0}
        with self._engine.start("text", body, usage) as generation:
            while not (chunk := (yield from generation.next())).finish_reason:
                pass
        likely = {each["token"]: each["logprob"] for each in chunk.extra["logprobs"][0]["top_logprobs"] if each["token"]}
        scores: dict[str, float] = {}
        groups: dict[str, list[str]] = {}
        for option in options:
            starts = [token for token in likely if option.startswith(token)]
            if starts:
                groups.setdefault(max(starts, key=likely.__getitem__), []).append(option)
            else:
                scores[option] = min(likely.values())
        for token, group in groups.items():
            rest = dict.fromkeys(group, 0.0)
            if len(group) > 1:
                found = yield from self._scores(prompt + token, [option[len(token) :] for option in group], usage)
                rest = {option: found[option[len(token) :]] for option in group}
            scores.update({option: likely[token] + rest[option] for option in group})
        return scores

    def _call(self, tool: Tool, prompt: str, body: Body, request_id: str, usage: Usage) -> Flow[ModelChunk]:
        """Emit a call of ``tool``: the text as it is written, the parsed call in the last chunk."""
        head, arguments = call_head(tool.name), ""
        grammar = yield from self._engine.grammar(tool.parameters)
        body = {name: value for name, value in body.items() if name not in ("stop", "n_probs")}
        body.update(prompt=f"{prompt}{CALL} {head}".rstrip(), grammar=grammar)
        yield ModelChunk(content=head)
        with self._engine.start("text", body, usage) as generation:
            while not (chunk := (yield from generation.next())).finish_reason:
                arguments += chunk.content
                yield chunk
        arguments += chunk.content
        last = ModelChunk(
            content=chunk.content,
            tool_calls=[ToolCallDelta(0, tool.name, arguments, f"call_{request_id[:16]}")],
            finish_reason=chunk.finish_reason,
            usage=usage,
            extra=chunk.extra,
        )
        if chunk.finish_reason == "stop":
            last.content, last.finish_reason = chunk.content + "}", "tool_calls"
        yield last
        return last


def checked_choice(wanted: Any, names: Collection[str]) -> str:
    """A ``tool_choice`` as one word: ``"auto"``, ``"none"``, ``"required"`` or the name of the function that it wants.

    Raises:
        ModelConfigurationError: it is none of these.
    """
    if isinstance(wanted, dict):
        name = wanted.get("function", {}).get("name")
        if name not in names:
            raise ModelConfigurationError(
                f"tool_choice names {name!r}; the tools of the request are {', '.join(map(repr, names))}"
            )
        return str(name)
    if wanted not in (None, "auto", "none", "required"):
        raise ModelConfigurationError(f"tool_choice is 'auto', 'none', 'required' or names a function, not {wanted!r}")
    return wanted or "auto"


def _prompt(system: str, tools: Sequence[Tool], turns: Sequence[Turn]) -> str:
    """The text that ends where the model writes a call or an answer."""
    examples = [example for tool in tools for example in tool.examples]
    unshown = [tool for tool in tools if not tool.examples]
    about = [f"{tool.name}({json.dumps(tool.parameters.get('properties', {}))}): {tool.description}" for tool in unshown]
    header = "\n".join([*([system] if system else []), *about])
    return (header + "\n\n" if header else "") + written([*([_NO_EXAMPLES] if unshown else []), *examples, *turns])


def _plain(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation without tool calls and results, which the chat template knows no form for; the answers tell of them."""
    return [message for message in messages if message["role"] != "tool" and not message.get("tool_calls")]
