"""Which engine of LMDeploy runs a model, and with which options."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import importlib.metadata
from collections.abc import Mapping
from typing import Any, Literal

from lagent.errors import ModelConfigurationError

__all__ = ["Backend", "check_version", "engine_config"]

Backend = Literal["turbomind", "pytorch"]

_DEFAULTS: dict[str, dict[str, Any]] = {
    "turbomind": {"enable_prefix_caching": True},
    # Without logprobs_mode the engine gives no log-probabilities, even to a request that asks for them.
    "pytorch": {"enable_prefix_caching": True, "logprobs_mode": "raw_logprobs"},
}
"""Options where lagent differs from LMDeploy."""


def check_version() -> None:
    """Make sure that there is an LMDeploy that this package knows, without importing it.

    Raises:
        ModelConfigurationError: LMDeploy is not installed, or is another version.
    """
    try:
        version = importlib.metadata.version("lmdeploy")
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelConfigurationError(
            "LMDeploy is not installed, or not for this system: pip install 'lmdeploy>=0.18,<0.19' (on Linux)"
        ) from error
    if version.split(".")[:2] != ["0", "18"]:
        raise ModelConfigurationError(
            f"LMDeploy {version} is installed, and this lagent-lmdeploy was made for 0.18, whose interfaces no other version shares: "
            "pip install 'lmdeploy>=0.18,<0.19', or install the lagent-lmdeploy made for it"
        )


def engine_config(
    path: str,
    backend: Backend | None,
    options: Any,
    *,
    tp: int = 1,
    adapters: Mapping[str, str] | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """The ``TurbomindEngineConfig`` or ``PytorchEngineConfig`` for a model.

    Args:
        path: the model, by which LMDeploy chooses the engine if ``backend`` does not.
        options: options of the engine by name, or a whole configuration object of LMDeploy.
        tp: over how many GPUs the model is spread.
        adapters: LoRA adapters by name, with their folders; PyTorch engine only.

    Raises:
        ModelConfigurationError: an option is unknown or cannot have this value.
    """
    from lmdeploy import PytorchEngineConfig, TurbomindEngineConfig

    kinds: dict[str, Any] = {"turbomind": TurbomindEngineConfig, "pytorch": PytorchEngineConfig}
    kind: Any = type(options)
    if kind in kinds.values():
        if backend is not None and kind is not kinds[backend]:
            raise ModelConfigurationError(f"backend is {backend!r}, but pipeline_cfg is a {kind.__name__}: leave one of them out")
        given = {field.name: copy.copy(getattr(options, field.name)) for field in dataclasses.fields(options)}
    else:
        if backend is None:
            backend = "pytorch" if adapters else _chosen(path, trust_remote_code)
        if backend not in kinds:
            raise ModelConfigurationError(f"backend must be 'turbomind' or 'pytorch', not {backend!r}")
        kind = kinds[backend]
        given = {**_DEFAULTS[backend], **(options or {})}
    given |= {name: value for name, value in (("tp", None if tp == 1 else tp), ("adapters", adapters)) if value is not None}
    if adapters and kind is TurbomindEngineConfig:
        raise ModelConfigurationError("turbomind knows no LoRA adapters: leave adapters out, or take backend='pytorch'")
    known = {field.name for field in dataclasses.fields(kind)}
    if unknown := sorted(given.keys() - known):
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ModelConfigurationError(
            f"{kind.__name__} has no option {', '.join(map(repr, unknown))}: {hint}It has {', '.join(sorted(known))}"
        )
    try:
        return kind(**given)
    except (AssertionError, TypeError, ValueError) as error:
        raise ModelConfigurationError(
            f"{kind.__name__} refuses its options: {str(error) or 'a value is out of range'}"
        ) from error


def _chosen(path: str, trust_remote_code: bool) -> Backend:
    """The engine that LMDeploy chooses for a model."""
    from lmdeploy.archs import autoget_backend

    try:
        chosen: Backend = autoget_backend(path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError) as error:
        raise ModelConfigurationError(f"LMDeploy cannot tell what kind of model {path!r} is: {error}") from error
    return chosen
