"""What an engine is asked to do, and what it gives."""

from __future__ import annotations

from typing import Any, Protocol

from attrs import define, field

from lagent.flow import Step
from lagent.schema import SessionId, Usage

__all__ = ["Generation", "Piece", "Source"]


@define
class Generation:
    """One request to an engine.

    Attributes:
        request_id: unique for every request; the only id that the engine may see.
        prompt_ids: the tokens of the prompt.
        params: sampling parameters under lagent's names; those that are ``None`` are left out.
        output_schema: JSON schema that the text has to follow.
        streamed: whether increments are wanted; otherwise one piece, the last, with everything in it.
        keep_special_tokens: whether special tokens are to stand in the text, where a parser reads them.
        session_id: whose request it is.
        media: what belongs to the prompt beside its tokens, such as images, in the engine's own form.
    """

    request_id: str
    prompt_ids: list[int]
    params: dict[str, Any] = field(factory=dict)
    output_schema: dict[str, Any] | None = None
    streamed: bool = True
    keep_special_tokens: bool = False
    session_id: SessionId = 0
    media: Any = None


@define
class Piece:
    """An increment of what an engine generates.

    Attributes:
        text: new text, without the end-of-turn token.
        token_ids: its tokens, the end-of-turn token included where the engine gives it.
        finish_reason: ``"stop"``, ``"length"`` or ``"abort"`` in the last piece, and only there.
        usage, extra: in the last piece.
        stopped_by: the stop word, not a token that ends turns, that ended the generation; in the last piece.
    """

    text: str = ""
    token_ids: list[int] = field(factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None
    extra: dict[str, Any] = field(factory=dict)
    stopped_by: str | None = None


class Source(Protocol):
    """What an engine generates, as steps of a flow: a :class:`lagent.flow.Stream` or a :class:`lagent_engines.BridgedStream`.

    The items are of :class:`Piece`; the last has a ``finish_reason`` and the usage. Closing ends the generation in the engine.
    """

    def next(self) -> Step: ...
    def close(self) -> Step: ...
