"""What the conformance tests of both colours have in common."""

from __future__ import annotations

from typing import Any, ClassVar

FAILING = {"max_model_len": 10**9}
"""Arguments with which no engine starts."""


class VllmTests:
    """Goes before the kit."""

    kind: ClassVar[Any]
    sampling: ClassVar[dict[str, Any]] = {"max_new_tokens": 16, "temperature": 0.0}
    deterministic = True
    overflow_prompt = "word " * 5000

    def running_requests(self, model: Any) -> int:
        return model._engine.running if model._loaded else 0

    def chat(self, model: Any, messages: Any, **options: Any) -> Any:
        return super().chat(model, messages, **with_room(options))  # type: ignore[misc]

    def stream(self, model: Any, messages: Any, **options: Any) -> Any:
        return super().stream(model, messages, **with_room(options))  # type: ignore[misc]


def with_room(options: dict[str, Any]) -> dict[str, Any]:
    """More tokens where a whole JSON object is asked for."""
    return {"max_new_tokens": 64, **options} if options.keys() & {"tool_choice", "output_schema"} else options
