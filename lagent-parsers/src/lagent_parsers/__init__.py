"""Output parsers for lagent: what models write, turned into structure, whole or streaming."""

from lagent_parsers.detect import AutoParser, TemplateCheck, check_model_template, detect
from lagent_parsers.dialect import DialectParser
from lagent_parsers.grammar import Block, Dialect
from lagent_parsers.reasoning import STYLES, Reasoning
from lagent_parsers.structured import CustomFormatParser, JSONParser, Structured
from lagent_parsers.tool import InterpreterParser, MixedToolParser, PluginParser, ToolParser, ToolStatusCode

__all__ = [
    "STYLES",
    "AutoParser",
    "Block",
    "CustomFormatParser",
    "Dialect",
    "DialectParser",
    "InterpreterParser",
    "JSONParser",
    "MixedToolParser",
    "PluginParser",
    "Reasoning",
    "Structured",
    "TemplateCheck",
    "ToolParser",
    "ToolStatusCode",
    "check_model_template",
    "detect",
]
