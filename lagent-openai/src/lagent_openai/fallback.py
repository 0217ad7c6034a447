"""A model that asks the next of several models where one fails."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from lagent import errors
from lagent.errors import (
    AuthenticationError,
    EngineError,
    ModelConfigurationError,
    ModelConnectionError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
)
from lagent.flow import Flow
from lagent.llms import ModelRequest
from lagent.schema import ModelChunk, ModelResponse
from lagent_openai.wrapper import AsyncWrapper, Wrapper, describe

__all__ = ["AsyncFallback", "Fallback"]

_PASSING = (AuthenticationError, EngineError, ModelConnectionError, ModelTimeoutError, RateLimitError)


class Fallback(Wrapper):
    """Asks the first model, and where it fails the next; nothing of an answer is ever repeated.

    An answer that another than the first model gave says so in ``extra["fallback"]`` (the agent's ``extra_info``): ``model`` gave it,
    ``failed`` lists the models before it, each with its ``error``.

    Args:
        models: the models, or their registry names or configurations, in order.
        on: which errors lead to the next model, as classes or names of :mod:`lagent.errors`: by default those that another server may
            not have (a rejected key, a rate limit, a timeout, a broken connection, a failing engine). Each model first uses up its
            own retries.

    Raises:
        ModelConfigurationError: there is no model, or ``on`` names no error of a model.
    """

    def __init__(self, models: Sequence[Any], on: Sequence[type[ModelError] | str] = _PASSING) -> None:
        super().__init__(models)
        self.on = tuple(map(_error_class, on))

    def _answering(self, request: ModelRequest) -> Flow[ModelResponse]:
        failed: list[dict[str, str]] = []
        for model in self.models:
            try:
                response: ModelResponse = yield from self._ask(model, request)
            except self.on as error:
                self._note(failed, model, error)
            else:
                response.extra |= _report(model, failed)
                return response
        raise AssertionError("the error of the last model was raised")

    def _streaming(self, request: ModelRequest) -> Flow[ModelChunk]:
        failed: list[dict[str, str]] = []
        for model in self.models:
            seen: list[ModelChunk] = []
            try:
                last: ModelChunk = yield from self._ask_streaming(model, request, partial(self._see, seen, model, failed))
                return last
            except self.on as error:
                if seen:
                    raise
                self._note(failed, model, error)
        raise AssertionError("the error of the last model was raised")

    @staticmethod
    def _see(seen: list[ModelChunk], model: Any, failed: list[dict[str, str]], chunk: ModelChunk) -> None:
        seen.append(chunk)
        if chunk.finish_reason is not None:
            chunk.extra |= _report(model, failed)

    def _note(self, failed: list[dict[str, str]], model: Any, error: ModelError) -> None:
        failed.append({"model": describe(model), "error": f"{type(error).__name__}: {error}"})
        if len(failed) == len(self.models):
            raise error


class AsyncFallback(AsyncWrapper, Fallback):
    """:class:`Fallback` for asynchronous callers."""


def _report(model: Any, failed: list[dict[str, str]]) -> dict[str, Any]:
    return {"fallback": {"model": describe(model), "failed": failed}} if failed else {}


def _error_class(error: type[ModelError] | str) -> type[ModelError]:
    found = getattr(errors, error, None) if isinstance(error, str) else error
    if not (isinstance(found, type) and issubclass(found, ModelError)):
        raise ModelConfigurationError(f"on= takes errors of models, such as 'RateLimitError' of lagent.errors, not {error!r}")
    return found
