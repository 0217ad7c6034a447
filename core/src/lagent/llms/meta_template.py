"""Rendering a conversation with a ``meta_template``, and checking it against the model's own chat template."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from lagent.errors import ModelConfigurationError

__all__ = ["INTERNLM2_META", "LMTemplateParser", "check_template"]

Message = dict[str, Any]


def _chatml(role: str, **names: str) -> Message:
    begin: Message = {"with_name": f"<|im_start|>{role} name={{name}}\n", "without_name": f"<|im_start|>{role}\n"}
    if names:
        begin["name"] = names
    return {"role": role, "begin": begin, "end": "<|im_end|>\n"}


_TOOLS = {"interpreter": "<|interpreter|>", "plugin": "<|plugin|>"}

INTERNLM2_META: list[Message] = [
    _chatml("system", **_TOOLS),
    _chatml("user"),
    _chatml("assistant", **_TOOLS),
    _chatml("environment", **_TOOLS),
]
"""The chat format of InternLM2 (ChatML with named system and environment messages), as lagent ships it."""


class LMTemplateParser:
    """Renders messages as the text that a language model continues.

    Args:
        meta_template: one mapping a role with ``role``, ``begin`` (text, or a mapping of ``with_name``, ``without_name`` and
            ``name``, which maps names to what is written for them), ``end``, and optionally ``generate`` (the model continues a
            last message of this role) and ``fallback_role``. Without it, messages are joined by line breaks.

    Raises:
        ModelConfigurationError: the template is not a list of such mappings, or names a role twice.
    """

    def __init__(self, meta_template: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.meta_template = meta_template
        self.roles: dict[str, dict[str, Any]] = {}
        if isinstance(meta_template, (str, Mapping)):
            raise ModelConfigurationError(
                f"meta_template must be a list of one mapping a role, such as INTERNLM2_META, not {meta_template!r:.60}"
            )
        for item in meta_template or ():
            role = item.get("role") if isinstance(item, Mapping) else None
            if not isinstance(role, str):
                raise ModelConfigurationError(f"every item of meta_template needs a 'role', this one has none: {item!r:.80}")
            if role in self.roles:
                raise ModelConfigurationError(f"meta_template has the role {role!r} twice")
            self.roles[role] = dict(item)

    def __call__(self, dialog: str | Sequence[str | Message], *, generate: bool = True) -> str:
        """The text of ``dialog``; a string is returned as it is.

        Args:
            generate: whether the model is to continue the text, so that it ends where an answer begins.

        Raises:
            ModelConfigurationError: a message has a role that the template does not know.
        """
        if isinstance(dialog, str):
            return dialog
        if not self.meta_template:
            texts = (item if isinstance(item, str) else str(item.get("content") or "") for item in dialog)
            return "\n".join(text for text in texts if text)
        last = len(dialog) - 1 if generate else -1
        return "".join(item if isinstance(item, str) else self._render(item, index == last) for index, item in enumerate(dialog))

    def _render(self, message: Message, last: bool) -> str:
        role = self._role(message["role"])
        if fallback := role.get("fallback_role"):
            role = self._role(fallback)
        text: str = self._begin(role, message.get("name")) + str(message.get("content") or "")
        if last and role.get("generate"):
            return text
        text += role.get("end", "")
        if last and role["role"] != "assistant":
            text += self._begin(self._role("assistant"), None)
        return text

    def _role(self, name: str) -> dict[str, Any]:
        try:
            return self.roles[name]
        except KeyError:
            raise ModelConfigurationError(
                f"meta_template has no role {name!r}; it has {', '.join(map(repr, self.roles))}: add the role or a 'fallback_role'"
            ) from None

    @staticmethod
    def _begin(role: Mapping[str, Any], name: str | None) -> str:
        begin = role.get("begin", "")
        if isinstance(begin, str):
            return begin
        if name is None:
            return str(begin.get("without_name", ""))
        return str(begin.get("with_name", "")).format(name=begin.get("name", {}).get(name, name))


_PROBE: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "How are you?"},
]


def check_template(
    parser: LMTemplateParser,
    own: Callable[[list[Message]], str],
    *,
    on_mismatch: Literal["error", "warn", "ignore"] = "warn",
) -> bool:
    """Compare a ``meta_template`` with the model's own chat template on a probe conversation.

    Args:
        parser: renders with the ``meta_template``.
        own: renders messages with the model's own template, up to where the model starts to write.
        on_mismatch: what a difference leads to; its text holds a diff of both renderings.

    Returns:
        Whether both render the same; a leading begin-of-text token that only the model's own template writes does not count.

    Raises:
        ModelConfigurationError: they differ and ``on_mismatch`` is ``"error"``.
    """
    if on_mismatch == "ignore" or not parser.meta_template:
        return True
    given, expected = parser(_PROBE), own(_PROBE)
    if expected.endswith(given) and len(expected) - len(given) <= 32 and "\n" not in expected[: -len(given)]:
        return True
    diff = "\n".join(
        difflib.unified_diff(
            [repr(line) for line in expected.splitlines(keepends=True)],
            [repr(line) for line in given.splitlines(keepends=True)],
            "the model's own chat template",
            "meta_template",
            lineterm="",
        )
    )
    text = (
        "meta_template does not match the chat template of the model, so the model sees a format it was not trained on. Leave "
        f"meta_template out to use the model's own, or correct it:\n{diff}"
    )
    if on_mismatch == "error":
        raise ModelConfigurationError(text)
    warnings.warn(text, stacklevel=3)
    return False
