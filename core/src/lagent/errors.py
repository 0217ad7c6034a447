"""Every error that lagent raises.

All derive from :class:`LagentError`; each also derives from the built-in exception that describes it, so that
``except ValueError`` or ``except ConnectionError`` written without lagent in mind goes on working.
"""

from __future__ import annotations

__all__ = [
    "ActionArgumentsError",
    "AuthenticationError",
    "ComponentConflictError",
    "ComponentLoadError",
    "ComponentNotFoundError",
    "ConfigurationError",
    "ContextOverflowError",
    "EngineError",
    "HookError",
    "LagentError",
    "ModelConfigurationError",
    "ModelConnectionError",
    "ModelError",
    "ModelTimeoutError",
    "OutputParseError",
    "PluginVersionError",
    "RateLimitError",
    "SessionBusyError",
    "SessionError",
    "SessionRequiredError",
    "StateError",
    "StoreError",
    "UnsupportedCapabilityError",
]


class LagentError(Exception):
    """Base of every error that lagent raises."""


class ConfigurationError(LagentError, ValueError):
    """A value in a configuration file or a constructor argument cannot be used."""


# Components ------------------------------------------------------------------------------------------------------


class ComponentNotFoundError(LagentError, LookupError):
    """No installed distribution registers a component of this kind under this name."""


class ComponentConflictError(LagentError, LookupError):
    """Several distributions register a component of this kind under the same name."""


class ComponentLoadError(LagentError, ImportError):
    """The distribution that registers the component could not be imported; the cause is chained."""


class PluginVersionError(ComponentLoadError):
    """The distribution was built for a plugin API version that this core does not accept."""


# Models ----------------------------------------------------------------------------------------------------------


class ModelError(LagentError):
    """A model call failed; the cause is chained where there is one.

    Attributes:
        request_id: the id that the engine or server gave the request, if it is known.
    """

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


class ModelConfigurationError(ModelError, ConfigurationError):
    """The request was refused for what it asks: an unknown model, parameter or role, or a missing model file."""


class UnsupportedCapabilityError(ModelConfigurationError):
    """The request needs something that the model does not offer (see :class:`lagent.llms.Capabilities`)."""


class AuthenticationError(ModelError):
    """The server rejected the key or its permissions."""


class RateLimitError(ModelError):
    """The server asks to slow down.

    Attributes:
        retry_after: seconds to wait before the next try, if the server said so.
    """

    def __init__(self, message: str, *, request_id: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, request_id=request_id)
        self.retry_after = retry_after


class ContextOverflowError(ModelError, ValueError):
    """Prompt and requested output do not fit the context window of the model."""


class ModelTimeoutError(ModelError, TimeoutError):
    """The model did not answer, or did not go on answering, within its time limit."""


class ModelConnectionError(ModelError, ConnectionError):
    """The server cannot be reached, or the connection broke."""


class EngineError(ModelError, RuntimeError):
    """The inference engine or server failed while serving the request."""


# Output ----------------------------------------------------------------------------------------------------------


class OutputParseError(LagentError, ValueError):
    """The output of the model does not have the form that the output parser reads.

    Attributes:
        raw: the text as the model wrote it.
    """

    def __init__(self, message: str, raw: str = "") -> None:
        super().__init__(message)
        self.raw = raw


class ActionArgumentsError(LagentError, ValueError):
    """The arguments of a tool call do not fit the schema of the action."""


# Agents ----------------------------------------------------------------------------------------------------------


class HookError(LagentError):
    """A hook raised; the message names the hook and the event, the cause is chained."""


class SessionError(LagentError):
    """Base of the session errors."""


class SessionRequiredError(SessionError, ValueError):
    """An agent with ``require_session=True`` was called without a ``session_id``."""


class SessionBusyError(SessionError, RuntimeError):
    """Another call of the same session is running and this one may not, or can never, wait for it."""


class StateError(LagentError, ValueError, KeyError):
    """A saved state does not fit the agent, is damaged, or was written by a newer version."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class StoreError(LagentError, OSError):
    """A memory store cannot read or write."""
