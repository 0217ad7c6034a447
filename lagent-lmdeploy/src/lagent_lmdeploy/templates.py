"""Chat templates of LMDeploy, as its ``ChatTemplateConfig`` describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lagent.errors import ModelConfigurationError
from lagent.llms import LMTemplateParser
from lagent_engines.templates import MARK

__all__ = ["ConfiguredTemplate", "template_config"]


def template_config(given: Any, model_name: str | None) -> Any:
    """The ``ChatTemplateConfig`` that is meant, if any.

    Args:
        given: one, or its fields by name.
        model_name: the name of one of LMDeploy's templates.

    Raises:
        ModelConfigurationError: LMDeploy has no template of this name, or a field is unknown.
    """
    from lmdeploy import ChatTemplateConfig
    from lmdeploy.model import MODELS

    if given is None and model_name is None:
        return None
    if given is None or isinstance(given, Mapping):
        try:
            given = ChatTemplateConfig(**{"model_name": model_name, **(given or {})})
        except TypeError as error:
            raise ModelConfigurationError(
                f"chat_template_config has a field that ChatTemplateConfig does not know: {error}"
            ) from error
    known = sorted(MODELS.module_dict)
    if given.model_name not in known:  # LMDeploy would take an empty template for it
        raise ModelConfigurationError(
            f"LMDeploy has no chat template {given.model_name!r}: leave model_name out to use the model's own, choose one of "
            f"{', '.join(known)}, or describe one with chat_template_config={{'model_name': 'base', 'user': …}}"
        )
    return given


class ConfiguredTemplate(LMTemplateParser):
    """Renders messages with a template of LMDeploy.

    Args:
        config: a ``ChatTemplateConfig``.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.meta_template = config
        self._name = config.model_name
        self._template = config.chat_template()

    def __call__(self, dialog: str | Sequence[str | dict[str, Any]], *, generate: bool = True) -> str:
        """See :class:`lagent.llms.LMTemplateParser`."""
        if isinstance(dialog, str):
            return dialog
        messages = [{"role": "user", "content": item} if isinstance(item, str) else item for item in dialog]
        messages = [{**message, "content": message.get("content") or ""} for message in messages]
        if generate:
            return self._text(messages)
        # LMDeploy always lets an answer begin, or the last one go on: a question more, and what comes before it has ended.
        return self._text([*messages, {"role": "user", "content": MARK}]).partition(MARK)[0].removesuffix(self._template.user)

    def _text(self, messages: list[dict[str, Any]]) -> str:
        try:
            return str(self._template.messages2prompt(messages))
        except Exception as error:  # templates are code of many kinds
            raise ModelConfigurationError(
                f"LMDeploy's chat template {self._name!r} refuses the conversation: {type(error).__name__}: {error}"
            ) from error
