"""A scripted model: it answers what a test wants it to answer."""

from lagent_echo.model import AsyncEchoModel, EchoModel

__all__ = ["AsyncEchoModel", "EchoModel"]
