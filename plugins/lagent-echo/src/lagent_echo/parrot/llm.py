"""The model ``parrot``, in both colours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from lagent.llms import AsyncBaseLLM, BaseLLM, Capabilities, ModelRequest
from lagent.schema import ModelChunk, Usage

__all__ = ["AsyncParrotModel", "ParrotModel"]

CAPABILITIES = Capabilities(streaming=True, raw_prompts=True)
"""What the model can do. lagent refuses requests for anything else before they get here."""


class ParrotModel(BaseLLM):
    """Says what it was asked last, word by word. Arguments: see :class:`lagent.llms.BaseLLM`."""

    capabilities = CAPABILITIES

    def _stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        yield from _answer(request)


class AsyncParrotModel(AsyncBaseLLM):
    """:class:`ParrotModel` for asynchronous agents."""

    capabilities = CAPABILITIES

    async def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        for chunk in _answer(request):
            yield chunk


def _answer(request: ModelRequest) -> Iterator[ModelChunk]:
    """The answer in chunks, the last of which tells why it ended and what it took. Ask your engine here."""
    asked = [str(message.get("content") or "") for message in request.messages] if request.prompt is None else [request.prompt]
    text = asked[-1]
    for stop in request.params["stop_words"]:
        text = text.partition(stop)[0]
    words = text.split(" ")
    most = request.params["max_new_tokens"]
    told = words if most is None else words[:most]
    for number, word in enumerate(told):
        yield ModelChunk(f" {word}" if number else word)
    usage = Usage(prompt_tokens=sum(len(content.split()) for content in asked), completion_tokens=len(told))
    yield ModelChunk(finish_reason="stop" if told == words else "length", usage=usage)
