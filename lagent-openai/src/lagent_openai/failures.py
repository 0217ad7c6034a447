"""From the errors of the ``openai`` package to lagent's."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from typing import Any

import openai

from lagent.errors import (
    AuthenticationError,
    ContextOverflowError,
    EngineError,
    ModelConfigurationError,
    ModelConnectionError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
)

__all__ = ["model_error", "retry_after"]

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|(maximum|max|available) (model |context )?(context|length|window|size)"
    r"|context (window|size|length)|(prompt|input).{0,40} (is )?too (long|large)|longer than the maximum|max_model_len|tokens \+ `max_new_tokens` must be",
    re.IGNORECASE,
)
_NO_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "account_deactivated")
_LONGEST = 500


def model_error(error: Exception, server: str) -> ModelError:
    """The error of lagent's that says what ``error`` means.

    Args:
        error: raised by the ``openai`` package, or by reading what the server sent.
        server: the base URL, for the message.
    """
    if isinstance(error, openai.APITimeoutError):
        return ModelTimeoutError(f"{server} could not be reached within its time limit")
    if isinstance(error, openai.APIConnectionError):
        return ModelConnectionError(f"the connection to {server} failed: {error.__cause__ or error.message}")
    if isinstance(error, openai.APIStatusError):
        return _of_status(error.status_code, error.body, error.response.headers, error, f"{server} answered {error.status_code}")
    if isinstance(error, openai.APIError):
        return _of_status(_status_in(error.body), error.body, {}, error, f"{server} broke off its answer")
    return EngineError(f"the answer of {server} cannot be read: {type(error).__name__}: {str(error)[:_LONGEST]}")


def _of_status(status: int, body: Any, headers: Mapping[str, str], error: openai.APIError, what: str) -> ModelError:
    reason = body.get("message") if isinstance(body, Mapping) else None
    text = f"{what}: {str(reason or error.message)[:_LONGEST]}"
    code = f"{error.code} {error.type}"
    request_id = headers.get("x-request-id")
    if status in (401, 403) or any(name in code for name in _NO_QUOTA):
        return AuthenticationError(text, request_id=request_id)
    if status in (400, 413, 422, 500) and _OVERFLOW.search(f"{code} {reason or error.message}"):
        return ContextOverflowError(text, request_id=request_id)
    wait = retry_after(headers)
    if status == 429 or (status == 503 and wait is not None):
        return RateLimitError(text, request_id=request_id, retry_after=wait)
    if status in (408, 504):
        return ModelTimeoutError(text, request_id=request_id)
    if status == 409 or status >= 500:
        return EngineError(text, request_id=request_id)
    return ModelConfigurationError(text, request_id=request_id)


def _status_in(body: Any) -> int:
    """The HTTP status that an error object inside a stream stands for."""
    code = body.get("code") if isinstance(body, Mapping) else None
    try:
        return int(code)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        kind = f"{code} {body.get('type')}" if isinstance(body, Mapping) else ""
        return 429 if "rate_limit" in kind else 400 if "invalid_request" in kind or "context_length" in kind else 500


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a ``Retry-After`` header (seconds or a date, RFC 9110 §10.2.3) asks to wait."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
