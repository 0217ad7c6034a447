"""What lagent's inference engines have in common."""

from lagent_engines.answers import Answer, required_call
from lagent_engines.bridge import Bridge, BridgedStream
from lagent_engines.model import AsyncEngineMixin, EngineModel
from lagent_engines.pieces import Generation, Piece, Source
from lagent_engines.prompts import Prompt, Prompts, Reply
from lagent_engines.templates import ChatTemplate, MetaTemplate, Template

__all__ = [
    "Answer",
    "AsyncEngineMixin",
    "Bridge",
    "BridgedStream",
    "ChatTemplate",
    "EngineModel",
    "Generation",
    "MetaTemplate",
    "Piece",
    "Prompt",
    "Prompts",
    "Reply",
    "Source",
    "Template",
    "required_call",
]
