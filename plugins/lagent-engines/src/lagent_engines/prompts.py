"""Prompts as tokens, made at the cost of what is new.

A turn of a conversation takes over the tokens of the turn before, prompt and answer, as they are, and renders and tokenises only what
follows. So its prompt begins exactly with what the engine has seen already, and the engine's prefix cache keeps hitting: rendering and
tokenising a conversation anew does not, since text does not say which tokens the model wrote, nor a list of tool calls which spaces.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from attrs import define, evolve, field, frozen

from lagent.errors import ModelConfigurationError
from lagent.schema import SessionId
from lagent_engines.templates import MARK, Message, Template

__all__ = ["Prompt", "Prompts", "Reply"]

_SESSIONS = 4096
"""How many sessions are remembered; one that was forgotten is rendered and tokenised as a whole once."""
_CONVERSATIONS = 8
"""How many conversations of one session are remembered: several agents may share a session."""
_REASONING = ("reasoning_content", "reasoning", "thinking")
"""The fields of a message under which templates look for reasoning."""
_PROBES: list[list[Message]] = [
    [
        {"role": "user", "content": "First?"},
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": "Second?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Third?"},
    ],
    [
        {"role": "user", "content": "First?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "look_up", "arguments": {"of": 1}}}],
        },
        {"role": "tool", "tool_call_id": "call00001", "name": "look_up", "content": "1"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call00002", "type": "function", "function": {"name": "look_up", "arguments": {"of": 2}}}],
        },
        {"role": "tool", "tool_call_id": "call00002", "name": "look_up", "content": "2"},
    ],
]
"""Conversations whose last answer is followed by one message, as what the last turn adds to a prompt is compared with and without the
turns before it."""


@frozen
class Reply:
    """An answer of the model: what the engine generated, and what became of it.

    Attributes:
        token_ids: what the engine generated.
        content, tool_calls, reasoning: what was made of it; ``tool_calls`` are names with the text of their arguments.
        verbatim: whether the tokens are to stand in the history as they are; not if a stop word cut the text, say.
    """

    token_ids: Sequence[int]
    content: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()
    reasoning: str | None = None
    verbatim: bool = True

    def is_in(self, message: Message) -> bool:
        """Whether ``message`` of a conversation is this answer, unchanged."""
        calls = message.get("tool_calls") or ()
        functions = [call["function"] for call in calls]
        return (
            message["role"] == "assistant"
            and (message.get("content") or "") == self.content
            and tuple((function["name"], function["arguments"]) for function in functions) == self.tool_calls
        )


@frozen
class Prompt:
    """The prompt of one request.

    Attributes:
        ids: its tokens.
        rewritten: why it does not begin with the conversation's last prompt, if the chat template is the reason.
        conversation: what it was made of.
    """

    ids: list[int]
    rewritten: str | None
    conversation: Conversation = field(repr=False)


@define
class Conversation:
    """What is known of a conversation after a request.

    Attributes:
        messages: as they were given.
        seen: as the template saw them, with reasoning.
        tools, options: what else the template was given.
        ids: the tokens of the prompt.
        reply: what the engine generated for it.
    """

    messages: list[Message]
    seen: list[Message]
    tools: Sequence[Message] | None
    options: Mapping[str, Any] | None
    ids: Sequence[int] = ()
    reply: Reply | None = None

    def continues(self, other: Conversation) -> bool:
        """Whether this one begins with ``other``. Messages taken over from turn to turn are the same objects, so this is quick."""
        count = len(other.messages)
        same = self.tools == other.tools and self.options == other.options
        return same and len(self.messages) >= count and self.messages[:count] == other.messages


@frozen
class _Turn:
    """How the template writes one answer and what follows it.

    Attributes:
        before: up to where the model begins to write the answer.
        answer: from there to the end of the turn.
        behind: from there to where the model begins to write the next answer.
    """

    before: str
    answer: str
    behind: str


class Prompts:
    """Makes the prompts of a model.

    Args:
        template: the chat template.
        tokenizer: a Hugging Face tokenizer.
        add_special_tokens: whether the tokenizer adds what begins a text (no chat template does it itself, a ``meta_template`` does not).
    """

    def __init__(self, template: Template, tokenizer: Any, *, add_special_tokens: bool = False) -> None:
        self._template, self._tokenizer = template, tokenizer
        self._add_special_tokens = add_special_tokens
        self._special = frozenset(tokenizer.all_special_ids) | frozenset(getattr(tokenizer, "added_tokens_decoder", ()))
        self._sessions: OrderedDict[SessionId, list[Conversation]] = OrderedDict()
        self._lock = threading.Lock()
        self._end_of_turn, self._local = self._probed()

    # What users call

    def make(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        options: Mapping[str, Any] | None = None,
        session_id: SessionId = 0,
    ) -> Prompt:
        """The prompt for ``messages``.

        Args:
            messages: the conversation in OpenAI's form.
            tools, options: see :meth:`Template.render`.
            session_id: whose conversation it is; only those of the same session are continued.

        Raises:
            ModelConfigurationError: the template refuses the conversation.
        """
        asked = Conversation(list(messages), list(messages), tools, options)
        known = self._known(asked, session_id)
        if known is None:
            return self._whole(asked)
        count = len(known.messages)
        asked.seen[:count] = known.seen
        if len(asked.messages) == count:
            return Prompt(list(known.ids), None, asked)
        reply = known.reply if known.reply is not None and known.reply.is_in(asked.messages[count]) else None
        if reply is not None and reply.reasoning:
            asked.seen[count] = {**asked.seen[count], **dict.fromkeys(_REASONING, reply.reasoning)}
        turn = self._turn(asked, count)
        if isinstance(turn, str):
            return self._whole(asked, turn)
        if reply is None or not reply.verbatim or not turn.answer.endswith(self._end_of_turn):
            ids = [*known.ids, *self._encode_behind(known.ids, turn.answer + turn.behind)]
        elif any(text and text.strip() not in turn.answer for text in (reply.reasoning, reply.content)):
            return self._whole(asked, "the chat template leaves out parts of earlier answers, such as reasoning")
        else:
            ids = [*known.ids, *reply.token_ids]
            ids += self._encode_behind(ids, self._rest_of_turn(reply) + turn.behind)
        return Prompt(ids, None, asked)

    def plain(self, text: str) -> list[int]:
        """The tokens of a text that no template made."""
        bos = self._tokenizer.bos_token
        return self._encode(text, add_special_tokens=not (bos and text.startswith(bos)))

    def answered(self, prompt: Prompt, reply: Reply, session_id: SessionId = 0) -> None:
        """Remember what the engine generated for ``prompt``."""
        ids, generated = array("i", prompt.ids), array("i", reply.token_ids)  # lists of numbers take nine times as much
        known = evolve(prompt.conversation, ids=ids, reply=evolve(reply, token_ids=generated))
        with self._lock:
            conversations = self._sessions.setdefault(session_id, [])
            # The turn before is not continued any more, but by a second try, which is rare.
            conversations[:] = [each for each in conversations if not known.continues(each)][1 - _CONVERSATIONS :]
            conversations.append(known)
            self._sessions.move_to_end(session_id)
            if len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)

    def forget(self, session_id: SessionId) -> None:
        """Release what is remembered of a session."""
        with self._lock:
            self._sessions.pop(session_id, None)

    # Rendering

    def _known(self, asked: Conversation, session_id: SessionId) -> Conversation | None:
        """The conversation of the session that ``asked`` continues furthest."""
        with self._lock:
            conversations = list(self._sessions.get(session_id, ()))
        continued = [each for each in conversations if asked.continues(each)]
        return max(continued, key=lambda each: len(each.messages), default=None)

    def _whole(self, asked: Conversation, rewritten: str | None = None) -> Prompt:
        text = self._template.render(asked.seen, asked.tools, generate=True, options=asked.options)
        return Prompt(self._encode(text, self._add_special_tokens), rewritten, asked)

    def _turn(self, asked: Conversation, count: int) -> _Turn | str:
        """How the template writes the message at ``count`` and what follows; why it does not just append them, in words."""
        head = self._head(asked.seen[:count]) if self._local else asked.seen[:count]

        def render(messages: Sequence[Message], generate: bool) -> str:
            return self._template.render(messages, asked.tools, generate=generate, options=asked.options)

        return _split(render, head, asked.seen[count:])

    @staticmethod
    def _head(messages: list[Message]) -> list[Message]:
        """The part of ``messages`` that what follows depends on, with a template that takes each message by itself.

        That is the system prompt, the last question, and the first answer to it with reasoning, by which it shows whether the template
        takes the reasoning back when the next question comes.
        """
        asked = next((place for place in reversed(range(len(messages))) if messages[place]["role"] == "user"), None)
        if asked is None:
            return messages
        first = next(place for place, message in enumerate(messages) if message["role"] not in ("system", "developer"))
        since = iter(messages[asked + 1 :])
        thought = next((message for message in since if _REASONING[0] in message), None)
        if thought is None:
            return [*messages[:first], messages[asked]]
        results = takewhile(lambda message: message["role"] == "tool", since)
        return [*messages[:first], messages[asked], thought, *results]

    def _probed(self) -> tuple[str, bool]:
        """What the template writes behind an answer, and whether it writes every message without regard to those long before."""

        def render(messages: Sequence[Message], generate: bool) -> str:
            return self._template.render(messages, generate=generate)

        question: Message = {"role": "user", "content": "?"}
        try:
            end = render([question, {"role": "assistant", "content": MARK}], generate=False).rpartition(MARK)[2]
        except ModelConfigurationError:
            return "", False
        local = True
        for probe in _PROBES:
            for messages in (probe, [{"role": "system", "content": "Be brief."}, *probe]):
                before, last = messages[:-2], messages[-2:]
                try:
                    local = local and _same_but_before(_split(render, before, last), _split(render, self._head(before), last))
                except ModelConfigurationError:
                    continue  # such conversations are refused anyway
        return end, local

    # Tokens

    def _rest_of_turn(self, reply: Reply) -> str:
        """What is missing behind the tokens of ``reply`` for the template's end of the turn."""
        begin = self._encode(self._end_of_turn)[:1]
        if reply.token_ids and reply.token_ids[-1] in self._special and self._special.issuperset(begin):
            return self._end_of_turn.removeprefix(self._tokenizer.decode(begin, skip_special_tokens=False))
        return self._end_of_turn

    def _encode_behind(self, ids: Sequence[int], text: str) -> list[int]:
        """The tokens of ``text`` behind ``ids``; tokenizers may treat the beginning of a text unlike its middle."""
        last = str(self._tokenizer.decode(ids[-1:], skip_special_tokens=False))
        anchor, whole = self._encode(last), self._encode(last + text)
        return whole[len(anchor) :] if whole[: len(anchor)] == anchor else self._encode(text)

    def _encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return ids


def _split(render: Callable[[Sequence[Message], bool], str], head: list[Message], rest: list[Message]) -> _Turn | str:
    """How the first message of ``rest`` and the others are written behind ``head``; if not behind it, why."""
    before = render(head, True)
    until = render([*head, rest[0]], False)
    whole = render([*head, *rest], True)
    if not until.startswith(before):
        return "the chat template writes an answer unlike it lets the model begin one"
    if not whole.startswith(until):
        return "the chat template changes earlier messages when new ones follow, such as by leaving out reasoning"
    return _Turn(before, until[len(before) :], whole[len(until) :])


def _same_but_before(first: _Turn | str, second: _Turn | str) -> bool:
    if isinstance(first, str) or isinstance(second, str):
        return first == second
    return (first.answer, first.behind) == (second.answer, second.behind)
