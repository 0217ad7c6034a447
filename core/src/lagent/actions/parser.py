"""What an action takes from a model and what it gives back, between text and Python."""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections.abc import Iterable, Mapping
from typing import Any

from lagent.errors import ActionArgumentsError
from lagent.schema import to_data

__all__ = ["BaseParser", "JsonParser", "ParseError", "TupleParser", "content_parts"]


class ParseError(ActionArgumentsError):
    """The input of an action cannot be read; ``err_msg`` says why."""

    def __init__(self, err_msg: str) -> None:
        super().__init__(err_msg)
        self.err_msg = err_msg


class BaseParser:
    """Takes the input as it is, as the value of the action's first parameter (or, if it names parameters, as keyword arguments).

    Args:
        action: the action whose inputs and outputs are parsed.

    Attributes:
        PARAMETER_DESCRIPTION: tells the model how to write the arguments; put into the action's description.

    Raises:
        ValueError: the action's description requires parameters that it does not list.
    """

    PARAMETER_DESCRIPTION: str = ""

    def __init__(self, action: Any) -> None:
        self.action = action
        self._api2param: dict[str, list[dict[str, Any]]] = {}
        self._api2required: dict[str, list[str]] = {}
        for api in action.description.get("api_list", [action.description]):
            if unknown := set(api["required"]) - {parameter["name"] for parameter in api["parameters"]}:
                raise ValueError(f"{action.name}: {api['name']!r} requires parameters that it does not list: {sorted(unknown)}")
            if self.PARAMETER_DESCRIPTION:
                api["parameter_description"] = self.PARAMETER_DESCRIPTION
            name = api["name"] if action.is_toolkit else "run"
            self._api2param[name], self._api2required[name] = api["parameters"], api["required"]

    def parse_inputs(self, inputs: Any, name: str = "run") -> dict[str, Any]:
        """The keyword arguments that a model's ``inputs`` for the API ``name`` mean; their types are checked afterwards.

        Raises:
            ParseError: they cannot be read.
        """
        names = [parameter["name"] for parameter in self._api2param[name]]
        if isinstance(inputs, Mapping) and set(inputs) <= {*names, "session_id"}:
            return dict(inputs)
        if not names:
            raise ParseError(f"{name!r} takes no arguments, got {inputs!r:.80}")
        return {names[0]: inputs}

    def parse_outputs(self, outputs: Any) -> list[dict[str, Any]]:
        """The result parts that an action's return value means.

        A list of content parts is taken as parts, in OpenAI's form or as ``{"type": …, "content": …}``; structured data becomes JSON
        text, anything else its ``str``.
        """
        if isinstance(outputs, (list, tuple)) and outputs and all(map(_is_part, outputs)):
            return [_result_part(part) for part in outputs]
        data = to_data(outputs)
        return [
            {"type": "text", "content": json.dumps(data, ensure_ascii=False) if isinstance(data, (dict, list)) else str(data)}
        ]


class JsonParser(BaseParser):
    """Takes a JSON object, as a dict or as text, in a Markdown code block or not."""

    PARAMETER_DESCRIPTION = (
        "Pass the arguments of this tool as one JSON object that maps parameter names to values: {name: value}."
    )

    def parse_inputs(self, inputs: Any, name: str = "run") -> dict[str, Any]:
        if isinstance(inputs, str):
            text = re.sub(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", r"\1", inputs, flags=re.DOTALL)
            try:
                inputs = json.loads(text or "{}")
            except (ValueError, RecursionError) as error:
                raise ParseError(f"the arguments are not valid JSON ({error}): {text:.200}") from error
        if not isinstance(inputs, Mapping):
            raise ParseError(f"the arguments should be a JSON object that maps parameter names to values, got {inputs!r:.200}")
        return dict(inputs)


class TupleParser(BaseParser):
    """Takes the arguments in order, as a tuple or as the text of one."""

    PARAMETER_DESCRIPTION = "Pass the arguments of this tool as a tuple, in the order of its parameters: (value1, value2)."

    def parse_inputs(self, inputs: Any, name: str = "run") -> dict[str, Any]:
        if not isinstance(inputs, tuple):
            try:
                inputs = literal_eval(inputs)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
                raise ParseError(f"the arguments are not a tuple of values: {inputs!r:.200}") from error
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        names, least = [parameter["name"] for parameter in self._api2param[name]], len(self._api2required[name])
        if not least <= len(inputs) <= len(names):
            wanted = str(least) if least == len(names) else f"{least} to {len(names)}"
            raise ParseError(f"{name!r} takes {wanted} arguments ({', '.join(names)}), got {len(inputs)}")
        return dict(zip(names, inputs, strict=False))


def content_parts(parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The result parts of an action (``{"type": …, "content": …}``) as content parts in OpenAI's form."""
    return [
        {"type": "image_url", "image_url": {"url": part["content"]}}
        if part["type"] == "image"
        else {"type": part["type"], part["type"]: part["content"]}
        for part in parts
    ]


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("type"), str) and ("content" in value or value["type"] in value)


def _result_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of :func:`content_parts`."""
    if "content" in part:
        return dict(part)
    content = part[part["type"]]
    if part["type"] == "image_url" and isinstance(content, Mapping):
        return {"type": "image", "content": content["url"]}
    return {"type": part["type"], "content": content}
