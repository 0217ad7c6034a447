"""Asking the model once: prompt, call, parse, and asking again if need be."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lagent.aggregators import DefaultAggregator
from lagent.errors import ConfigurationError, OutputParseError, UnsupportedCapabilityError
from lagent.flow import END, Flow, Stream
from lagent.llms import BaseLLM
from lagent.llms.adapt import as_chunk, as_response, capabilities_of, model_call
from lagent.memory import Memory
from lagent.prompts.parsers import StrParser, error_of
from lagent.schema import AgentMessage, AgentStatusCode, ModelResponse, ParsedResponse, ResponseBuilder, SessionId, to_data

if TYPE_CHECKING:
    from lagent.agents.agent import Agent

__all__ = ["ModelTurn"]

Emit = Callable[[Any], Flow[AgentMessage]]


class ModelTurn:
    """One answer of an agent's model, from its memory.

    Args:
        agent: the agent.
        session_id: the session.
        memory: the conversation so far.
        emit: what every message of an unfinished answer goes through before it is emitted.
    """

    def __init__(self, agent: Agent, session_id: SessionId, memory: Memory, emit: Emit | None = None) -> None:
        self.agent, self.session_id, self.memory, self.emit = agent, session_id, memory, emit
        self.parser: Any = agent.output_format

    def run(self, options: Mapping[str, Any]) -> Flow[AgentMessage]:
        """Emit the answer as it grows, if the agent streams, and give it.

        Args:
            options: tools, sampling parameters and the like, for the model.

        Raises:
            OutputParseError: the output cannot be parsed and the agent is to raise then.
        """
        agent, hooks = self.agent, self.agent._hooks
        if agent.llm is None:
            raise ConfigurationError(f"agent {agent.name!r} has no model: pass llm=, or override forward")
        options = dict(options)
        prompt = self._prompt(options)
        attempt = 0
        while True:
            if hooks.heard("before_model"):
                prompt = yield from hooks.fire("before_model", agent, self.session_id, prompt)
            response, parsed, error = yield from self._ask(prompt, options)
            if error is None or agent.on_parse_error != "retry" or attempt == agent.parse_retries:
                break
            attempt += 1
            prompt = [
                *prompt,
                {"role": "assistant", "content": response.content},
                {"role": "user", "content": _correction(error)},
            ]
        if error is not None and agent.on_parse_error == "raise":
            raise OutputParseError(f"the output of agent {agent.name!r} cannot be parsed: {error}", response.content)
        return AgentMessage(
            response.content, sender=agent.name or "", formatted=parsed, extra_info=_extra_info(response, error, attempt)
        )

    def _prompt(self, options: dict[str, Any]) -> list[dict[str, Any]]:
        """The model messages. What the model cannot take by itself goes into the system prompt."""
        agent, parser = self.agent, self.parser
        can = capabilities_of(agent.llm)
        instructions = []
        if tools := options.get("tools"):
            if isinstance(parser, StrParser) and type(parser).format_tools is not StrParser.format_tools:
                instructions.append(parser.format_tools(tools))
                del options["tools"]
                options.pop("tool_choice", None)
            elif not can.tools:
                raise UnsupportedCapabilityError(
                    f"the model of agent {agent.name!r} ({type(agent.llm).__name__}) takes no tools: choose an output_format that "
                    "describes and reads them, such as 'hermes'"
                )
        if (schema := getattr(parser, "output_schema", None)) is not None:
            if can.json_schema:
                options.setdefault("output_schema", schema)
            else:
                instructions.append(str(parser.format_instruction()))
        system = _system(agent.template, instructions)
        aggregator = agent.aggregator
        # Models of lagent's own leave the messages as they are, so they need no copy, which would cost time for the history.
        reads_only = isinstance(agent.llm, BaseLLM) and not agent._hooks.heard("before_model")
        plain = reads_only and getattr(type(aggregator), "aggregate", None) is DefaultAggregator.aggregate
        prompt: list[dict[str, Any]] = (aggregator.view if plain else aggregator.aggregate)(
            self.memory, agent.name, parser, system
        )
        return prompt

    def _ask(self, prompt: Any, options: dict[str, Any]) -> Flow[tuple[ModelResponse, Any, str | None]]:
        """Call the model and parse what it gives: the response, what was parsed, and the parse error if there is one."""
        agent, hooks = self.agent, self.agent._hooks
        if agent.streaming:
            response, reader = yield from self._stream(prompt, options)
        else:
            response, reader = as_response((yield model_call(agent.llm, "chat", prompt, self.session_id, options))), None
        if hooks.heard("after_model"):
            response = yield from hooks.fire("after_model", agent, self.session_id, response)
        native = _native(response, options)
        if self.parser is None or (native is not None and native.tool_calls and not response.content):
            return response, _identified(native), None
        try:
            parsed = reader.finish() if reader is not None else self.parser.parse_response(response.content)
        except Exception as error:
            return response, None, str(error) or repr(error)
        if native is not None and native.tool_calls:
            if not isinstance(parsed, ParsedResponse):
                return response, _identified(native), None
            parsed.tool_calls, parsed.reasoning = native.tool_calls, parsed.reasoning or native.reasoning
        return response, _identified(parsed), error_of(parsed)

    def _stream(self, prompt: Any, options: dict[str, Any]) -> Flow[tuple[ModelResponse, Any]]:
        agent, builder, text = self.agent, ResponseBuilder(), ""
        opened = yield model_call(agent.llm, "stream_chat", prompt, self.session_id, options)
        source = Stream(opened, blocking=getattr(agent.llm, "blocking", True), session_id=self.session_id)
        reader = self.parser.stream() if isinstance(self.parser, StrParser) else None
        try:
            while (item := (yield source.next())) is not END:
                chunk = builder.add(as_chunk(item, text))
                text += chunk.content
                if reader is not None:
                    reader.feed(chunk.content)
                if not (chunk.content or chunk.reasoning):
                    continue
                message: Any = AgentMessage(
                    text,
                    sender=agent.name or "",
                    formatted=self._partial(reader, text),
                    extra_info={"reasoning": chunk.reasoning} if chunk.reasoning else None,
                    stream_state=AgentStatusCode.STREAM_ING,
                    increment=chunk.content,
                )
                yield (yield from self.emit(message)) if self.emit is not None else message
        finally:
            yield source.close()
        return builder.response(), reader

    def _partial(self, reader: Any, text: str) -> Any:
        """What can be said of an unfinished text; nothing, if the parser cannot read such."""
        try:
            return reader.partial() if reader is not None else self.parser and self.parser.parse_response(text)
        except Exception:
            return None


def _system(template: Any, instructions: list[str]) -> Any:
    if template is not None and not isinstance(template, (str, Mapping, list, tuple)):
        template = str(template)  # a PromptTemplate
    missing = [text for text in instructions if text and not (isinstance(template, str) and text in template)]
    if not missing:
        return template
    if isinstance(template, str) or not template:
        return "\n\n".join([*([template] if template else []), *missing])
    return [*(template if isinstance(template, (list, tuple)) else [template]), *missing]


def _native(response: ModelResponse, options: Mapping[str, Any]) -> ParsedResponse | None:
    """The structure that the model itself, or its server, found in the answer; there is always one if tools were offered."""
    if not response.tool_calls and not options.get("tools"):
        return None
    return ParsedResponse(content=response.content, reasoning=response.reasoning, tool_calls=response.tool_calls)


def _identified(parsed: Any) -> Any:
    """Give every tool call an id, so that its result can refer to it."""
    if isinstance(parsed, ParsedResponse):
        for call in parsed.tool_calls:
            call.id = call.id or f"call_{uuid.uuid4().hex[:12]}"
    return parsed


def _correction(error: str) -> str:
    return f"Your answer could not be read: {error}\nAnswer again, in the required form."


def _extra_info(response: ModelResponse, error: str | None, attempt: int) -> dict[str, Any] | None:
    info = {
        "reasoning": response.reasoning,
        "finish_reason": response.finish_reason,
        "usage": response.usage and to_data(response.usage),
        "parse_error": error,
        "parse_retries": attempt or None,
    }
    return {**{name: value for name, value in info.items() if value is not None}, **response.extra} or None
