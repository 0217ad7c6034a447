"""A model whose answers are written to a file, and come from that file afterwards."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import attrs

from lagent import errors
from lagent.errors import ModelConfigurationError, ModelError
from lagent.flow import Flow
from lagent.llms import ModelRequest
from lagent.schema import ModelChunk, ModelResponse, ResponseBuilder, ToolCallDelta, Usage, to_data
from lagent_openai.wrapper import AsyncWrapper, Wrapper

__all__ = ["AsyncRecorded", "Recorded"]

Data = dict[str, Any]


class Recorded(Wrapper):
    """Records what a model answers, and replays it, so that tests run without the model.

    A request is found again by everything that shapes its answer: the model's name and sampling parameters, messages, tools, output
    schema; not by session or time. Where the same request was recorded several times, the answers come in that order, the last one
    from then on. Errors are recorded as well. Keys are left out of the file: those that the model knows, and whatever looks like one.

    Args:
        model: the model, or its registry name or configuration.
        path: the cassette file: JSON objects behind each other, one for each interaction, made to be read and edited.
        mode: ``"auto"`` replays what is in the file and records the rest; ``"replay"`` never asks the model; ``"record"`` always
            does, and begins the file anew.

    Raises:
        ModelConfigurationError: the file cannot be read, there is no such mode, or (in a call) nothing was recorded for a request.
    """

    def __init__(self, model: Any, path: str | os.PathLike[str], mode: Literal["auto", "replay", "record"] = "auto") -> None:
        super().__init__([model])
        if mode not in ("auto", "replay", "record"):
            raise ModelConfigurationError(f"mode must be 'auto', 'replay' or 'record', not {mode!r}")
        self.mode = mode
        self._cassette = Cassette(Path(path), self.scrub, fresh=mode == "record")

    def _answering(self, request: ModelRequest) -> Flow[ModelResponse]:
        key = self._key(request)
        if (played := self._played(key)) is not None:
            builder = ResponseBuilder()
            for chunk in played:
                builder.add(chunk)
            return builder.response()
        try:
            response: ModelResponse = yield from self._ask(self.models[0], request)
        except ModelError as error:
            self._cassette.add(key, {"error": _error_data(error)})
            raise
        self._cassette.add(key, {"answer": [_response_data(response)]})
        return response

    def _streaming(self, request: ModelRequest) -> Flow[ModelChunk]:
        key = self._key(request)
        if (played := self._played(key)) is not None:
            yield from played
            return played[-1]
        seen: list[ModelChunk] = []
        try:
            last: ModelChunk = yield from self._ask_streaming(self.models[0], request, seen.append)
        except ModelError as error:
            if not seen:
                self._cassette.add(key, {"error": _error_data(error)})
            raise
        self._cassette.add(key, {"answer": [_data_of(chunk) for chunk in seen]})
        return last

    def _key(self, request: ModelRequest) -> Data:
        asked = {name: getattr(request, name) for name in ("messages", "prompt", "tools", "tool_choice", "output_schema")}
        params = getattr(self.models[0], "gen_params", {}) | {
            n: v for n, v in request.params.items() if v is not None and v != []
        }
        key = {"model": self.path, **asked, "params": {name: value for name, value in params.items() if value is not None}}
        return {name: to_data(value) for name, value in key.items() if value is not None and value != []}

    def _played(self, key: Data) -> list[ModelChunk] | None:
        """The recorded answer, or ``None`` where the model is to be asked; raises a recorded error."""
        if self.mode == "record":
            return None
        found = self._cassette.find(key)
        if found is None:
            if self.mode == "replay":
                raise ModelConfigurationError(self._cassette.missing(key))
            return None
        if "error" in found:
            raise _error_of(found["error"])
        return [_chunk_of(data) for data in found["answer"]]


class AsyncRecorded(AsyncWrapper, Recorded):
    """:class:`Recorded` for asynchronous callers."""


# The file --------------------------------------------------------------------------------------------------------

_KEYS = re.compile(r"\b(?:sk|gsk|xai|hf|ghp|AKIA)[-_]?[A-Za-z0-9_-]{16,}|(?<=Bearer )[^\s\"\\]+")


class Cassette:
    """Interactions in a file.

    Args:
        path: the file; it need not exist.
        scrub: takes keys out of a text.
        fresh: whether to begin a new file with the first interaction.

    Raises:
        ModelConfigurationError: the file is damaged.
    """

    def __init__(self, path: Path, scrub: Callable[[str], str], *, fresh: bool) -> None:
        self.path = path
        self._scrub = scrub
        self._fresh = fresh
        self._lock = threading.Lock()
        self._known: dict[str, list[Data]] = {}
        self._played: dict[str, int] = {}
        if not fresh and path.exists():
            for interaction in _documents(path):
                self._known.setdefault(_canonical(interaction["request"]), []).append(interaction)

    def find(self, key: Data) -> Data | None:
        """The next interaction with this request."""
        name = _canonical(self._clean(key))
        with self._lock:
            if not (found := self._known.get(name)):
                return None
            count = self._played.get(name, 0)
            self._played[name] = count + 1
            return found[min(count, len(found) - 1)]

    def add(self, key: Data, outcome: Data) -> None:
        """Write an interaction."""
        interaction = self._clean({"request": key, **outcome})
        text = json.dumps(interaction, ensure_ascii=False, indent=2) + "\n"
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("w" if self._fresh else "a", encoding="utf-8") as file:
                file.write(text)
            self._fresh = False
            self._known.setdefault(_canonical(interaction["request"]), []).append(interaction)

    def missing(self, key: Data) -> str:
        """What to say of a request that was not recorded."""
        key = self._clean(key)
        recorded = [interactions[0]["request"] for interactions in self._known.values()]
        if not recorded:
            return f"nothing was recorded in {self.path}: record it with mode='auto'"
        fewest = min((_differences(one, key) for one in recorded), key=len)
        return (
            f"no such request was recorded in {self.path}; the nearest one differs in {'; '.join(fewest[:3])}: record it with "
            "mode='auto', or correct the request"
        )

    def _clean(self, data: Data) -> Data:
        cleaned: Data = json.loads(_KEYS.sub("***", self._scrub(json.dumps(data, ensure_ascii=False))))
        return cleaned


def _documents(path: Path) -> list[Data]:
    text, position, found = path.read_text(encoding="utf-8").rstrip(), 0, []
    decoder = json.JSONDecoder()
    while position < len(text):
        while text[position].isspace():
            position += 1
        try:
            document, position = decoder.raw_decode(text, position)
            found.append({"request": document["request"], **document})
        except (ValueError, KeyError, TypeError) as error:
            line = text.count("\n", 0, position) + 1
            raise ModelConfigurationError(f"{path} is damaged at line {line}: {error!r}; correct it or record it anew") from error
    return found


def _canonical(data: Data) -> str:
    return json.dumps(data, sort_keys=True)


def _differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted(one.keys() | other.keys())
        return [d for n in names for d in _differences(one.get(n), other.get(n), f"{where}.{n}" if where else n)]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [d for i, pair in enumerate(zip(one, other, strict=True)) for d in _differences(*pair, f"{where}[{i}]")]
    return [] if one == other else [f"{where} ({one!r:.60} was recorded, {other!r:.60} is asked)"]


# Data ------------------------------------------------------------------------------------------------------------


def _data_of(value: Any) -> Data:
    """The fields of an attrs object that differ from their defaults, without the engine's own object."""
    fresh = type(value)(**{a.name: getattr(value, a.name) for a in attrs.fields(type(value)) if a.default is attrs.NOTHING})
    names = [a.name for a in attrs.fields(type(value)) if a.init and a.name != "raw"]
    return {name: to_data(getattr(value, name)) for name in names if getattr(value, name) != getattr(fresh, name)}


def _response_data(response: ModelResponse) -> Data:
    """A whole answer as the data of its one chunk."""
    return _data_of(response.chunk())


def _chunk_of(data: Data) -> ModelChunk:
    parts = dict(data)
    if "usage" in parts:
        parts["usage"] = Usage(**parts["usage"])
    parts["tool_calls"] = [ToolCallDelta(**piece) for piece in parts.get("tool_calls", ())]
    return ModelChunk(**parts)


def _error_data(error: ModelError) -> Data:
    return {"type": type(error).__name__, "message": str(error), **{n: v for n, v in vars(error).items() if v is not None}}


def _error_of(data: Data) -> ModelError:
    kind, message = data["type"], data["message"]
    found = getattr(errors, kind, ModelError)
    error: ModelError = found(message)
    vars(error).update({name: value for name, value in data.items() if name not in ("type", "message")})
    return error
