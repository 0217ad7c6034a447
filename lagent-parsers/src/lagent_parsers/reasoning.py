"""How models mark their reasoning."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from lagent.errors import ConfigurationError

__all__ = ["STYLES", "Reasoning", "styles_of"]


@frozen
class Reasoning:
    """A pair of markers round a model's reasoning.

    Attributes:
        open, close: the markers. ``open`` counts where nothing stands before it but white space, reasoning and tool calls.
        ends_before: beginnings of what ends the reasoning as well.
        anywhere: whether ``open`` counts in the middle of the text as well.
        open_may_be_missing: whether ``close`` alone makes everything before it reasoning.
        form: how reasoning is written, with ``{reasoning}``.
    """

    open: str
    close: str
    ends_before: tuple[str, ...] = ()
    anywhere: bool = False
    open_may_be_missing: bool = True
    form: str = ""

    def write(self, reasoning: str) -> str:
        """The text of the reasoning, up to where the answer begins."""
        return (self.form or f"{self.open}\n{{reasoning}}\n{self.close}\n\n").format(reasoning=reasoning)


STYLES: dict[str, Reasoning] = {
    "think": Reasoning("<think>", "</think>"),  # DeepSeek, Qwen, GLM, Kimi, MiniMax, Nemotron, Hunyuan, …
    "thinking": Reasoning("<thinking>", "</thinking>"),
    "thought": Reasoning("<thought>", "</thought>"),
    "reasoning": Reasoning("<reasoning>", "</reasoning>"),
    "mistral": Reasoning("[THINK]", "[/THINK]", form="[THINK]{reasoning}[/THINK]"),  # Magistral
    "seed": Reasoning("<seed:think>", "</seed:think>"),  # Seed-OSS
    "cohere": Reasoning("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    "kimi-vl": Reasoning("◁think▷", "◁/think▷"),
    "granite": Reasoning("Here is my thought process:", "Here is my response:"),  # Granite 3.2
    "gemma": Reasoning("<|channel>thought\n", "<channel|>", form="<|channel>thought\n{reasoning}<channel|>"),  # Gemma 4
    "harmony": Reasoning(  # gpt-oss
        "<|channel|>analysis<|message|>",
        "<|end|>",
        ends_before=("<|start|>", "<|channel|>", "<|call|>", "<|return|>"),
        anywhere=True,
        open_may_be_missing=False,
        form="<|start|>assistant<|channel|>analysis<|message|>{reasoning}<|end|>",
    ),
    "react": Reasoning("Thought:", "Final Answer:", ends_before=("\nAction:",), form="Thought: {reasoning}\n"),
}
"""The styles by name."""


def styles_of(reasoning: str | Reasoning | Sequence[str | Reasoning]) -> tuple[Reasoning, ...]:
    """The styles that a user named.

    Raises:
        ConfigurationError: there is no style of that name.
    """
    if isinstance(reasoning, Reasoning):
        return (reasoning,)
    if not isinstance(reasoning, str):
        return tuple(style for each in reasoning for style in styles_of(each))
    if reasoning == "none":
        return ()
    if reasoning not in STYLES:
        raise ConfigurationError(f"there is no style of reasoning {reasoning!r}; there are none, {', '.join(STYLES)}")
    return (STYLES[reasoning],)
