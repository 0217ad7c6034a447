"""Prompt templates, in Python's format syntax or in Jinja's."""

from __future__ import annotations

import re
import string
from typing import Any

from lagent.errors import ConfigurationError

__all__ = ["PromptTemplate"]


class PromptTemplate:
    """A text with places for variables.

    Args:
        template: the text.
        format_type: ``"json"`` for places such as ``{name}``, filled in by :meth:`str.format`, or ``"jinja"`` for a sandboxed Jinja
            template (which needs ``pip install jinja2``).

    Attributes:
        actions_info, agents_info: what the template's variables ``action_info`` and ``agents_info`` stand for unless they are given.

    Raises:
        ConfigurationError: unknown ``format_type``.
    """

    def __init__(self, template: str, format_type: str = "json") -> None:
        if format_type not in ("json", "jinja"):
            raise ConfigurationError(f"format_type of a prompt template should be 'json' or 'jinja', not {format_type!r}")
        self.template = template
        self.format_type = format_type
        self.variables: dict[str, Any] = {}
        self.actions_info: Any = None
        self.agents_info: Any = None

    def format(self, **kwargs: Any) -> str:
        """The text with the variables filled in.

        Raises:
            ValueError: the template does not name a variable that is given, a variable is missing (in Jinja that is empty text),
                or the template cannot be read.
        """
        self.variables = kwargs
        return str(self)

    def __str__(self) -> str:
        """The text with the variables of the last :meth:`format`."""
        names = self.parse_template(self.template)
        if unknown := [name for name in self.variables if name not in names]:
            raise ValueError(f"the template has no variable {', '.join(unknown)}; it has {', '.join(names) or 'none'}")
        known = {"action_info": self.actions_info, "agents_info": self.agents_info}
        variables = {name: value for name, value in known.items() if value and name in names} | self.variables
        try:
            if self.format_type == "jinja":
                return str(_jinja().from_string(self.template).render(variables))
            return self.template.format(**variables)
        except Exception as error:  # of the template, or of a variable's own attributes
            raise ValueError(f"the template cannot be filled in: {type(error).__name__}: {error}") from error

    def parse_template(self, template: str) -> dict[str, None]:
        """The names of the variables in a template, as keys.

        Raises:
            ValueError: the template cannot be read.
        """
        if self.format_type == "json":
            fields = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
            return dict.fromkeys(re.split(r"[.\[]", name)[0] for name in fields)
        environment = _jinja()
        from jinja2 import TemplateSyntaxError, meta

        try:
            return dict.fromkeys(sorted(meta.find_undeclared_variables(environment.parse(template))))
        except TemplateSyntaxError as error:
            raise ValueError(f"the template is no valid Jinja: {error}") from error


def _jinja() -> Any:
    try:
        from jinja2.sandbox import SandboxedEnvironment
    except ImportError as error:
        raise ConfigurationError("prompt templates with format_type='jinja' need Jinja: pip install jinja2") from error
    return SandboxedEnvironment()
