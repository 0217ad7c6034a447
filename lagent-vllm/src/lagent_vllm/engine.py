"""vLLM in this process for synchronous callers."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from lagent.errors import EngineError, ModelConfigurationError
from lagent_engines import Piece
from lagent_vllm import errors
from lagent_vllm.processes import Log, processes_of, tell_of_death
from lagent_vllm.requests import EngineRequest, Outputs

__all__ = ["BaseEngine", "Engine"]

_in_process: weakref.WeakSet[Engine] = weakref.WeakSet()
"""The engine without a process of its own, if there is one: vLLM has one set of process groups for each process."""


class BaseEngine:
    """What both kinds of engine tell of the one of vLLM that they hold."""

    _engine: Any

    @property
    def max_model_len(self) -> int:
        """How many tokens a request may have, prompt and answer."""
        return int(self._engine.model_config.max_model_len)

    @property
    def running(self) -> int:
        """How many requests vLLM works on."""
        return int(self._engine.get_num_unfinished_requests())


class Engine(BaseEngine):
    """``vllm.LLM``, for any number of threads.

    It works only while somebody waits for it: whoever waits takes a step of the engine, which serves all requests.

    Args:
        arguments: vLLM's engine arguments.
        adapters: ``LoRARequest`` of the adapters to load, by name.

    Raises:
        ModelError: the engine does not start.
    """

    def __init__(self, arguments: Mapping[str, Any], adapters: Mapping[str, Any]) -> None:
        self._log = Log()
        self._turns = _Turns()
        self._answers: dict[str, Generated] = {}
        self._failure: Exception | None = None
        self._engine = None
        with errors.starting(arguments, self._log):
            _claim(self)
            try:
                from vllm import LLM

                self._engine = LLM(**arguments).llm_engine
                tell_of_death(self._engine)
                for adapter in adapters.values():
                    self._engine.add_lora(adapter)
            except BaseException:
                self._stop()
                raise

    def generate(self, request: EngineRequest) -> Generated:
        """Hand ``request`` to the engine.

        Raises:
            ModelError: the engine is dead, or refuses it.
        """
        with self._turns:
            self._check()
            answer = Generated(self, request)
            self._answers[request.id] = answer
            try:
                with errors.answering(self._log):
                    self._engine.add_request(
                        request.id,
                        request.prompt,
                        request.sampling_params,
                        lora_request=request.lora,
                        priority=request.priority,
                    )
            except BaseException:
                del self._answers[request.id]
                raise
            return answer

    def wait_for(self, answer: Generated) -> Any:
        """The next output of ``answer``."""
        while not answer.outputs:
            with self._turns:
                if answer.outputs:
                    break
                self._check()
                try:
                    outputs = self._engine.step()
                except Exception as error:
                    self._failure = error
                    continue
                for output in outputs:
                    if (known := self._answers.get(output.request_id)) is not None:
                        known.outputs.append(output)
        return answer.outputs.popleft()

    def abort(self, request_id: str) -> None:
        """Stop working on a request, if the engine still does."""
        with self._turns:
            if self._answers.pop(request_id, None) is not None and self._failure is None:
                self._engine.abort_request([request_id])

    def ended(self, request_id: str) -> None:
        """The engine has finished a request by itself."""
        self._answers.pop(request_id, None)

    def close(self) -> None:
        """Stop the engine. Who waits for it gets an :class:`EngineError`."""
        with self._turns:
            self._failure = self._failure or EngineError("the engine was closed: ask again, which starts it anew")
            self._stop()
        self._log.close()

    def _stop(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            processes = processes_of(engine)
            engine.renderer.shutdown()
            engine.engine_core.shutdown()
            for process in processes:
                process.join()
        _in_process.discard(self)

    def _check(self) -> None:
        if isinstance(self._failure, EngineError):
            raise self._failure
        if self._failure is not None:
            raise errors.death(self._failure, self._log) from self._failure


class Generated(Iterator[Piece]):
    """What the engine generates for a request. Closing it ends the generation.

    Attributes:
        outputs: what was not read yet.
    """

    def __init__(self, engine: Engine, request: EngineRequest) -> None:
        self._engine, self._request_id = engine, request.id
        self._made = Outputs(request)
        self._ended = False
        self.outputs: deque[Any] = deque()

    def __next__(self) -> Piece:
        if self._ended:
            raise StopIteration
        piece = self._made.piece(self._engine.wait_for(self))
        if piece.finish_reason is not None:
            self._ended = True
            self._engine.ended(self._request_id)
        return piece

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._engine.abort(self._request_id)


def _claim(engine: Engine) -> None:
    """Refuse a second engine without a process of its own; it would take the first one's process groups down with it."""
    from vllm import envs

    if envs.VLLM_ENABLE_V1_MULTIPROCESSING:
        return
    if _in_process:
        raise ModelConfigurationError(
            "with VLLM_ENABLE_V1_MULTIPROCESSING=0 a process has room for one engine of vLLM: close() the other model first, or unset "
            "the variable"
        )
    _in_process.add(engine)


class _Turns:
    """A lock that threads get in the order in which they came.

    With a plain one, a thread that takes one step after the other would hardly ever let others in.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        mine = threading.Lock()
        mine.acquire()
        with self._mutex:
            self._waiting.append(mine)
            if len(self._waiting) == 1:
                return
        try:
            mine.acquire()  # until the one before leaves
        except BaseException:
            self._leave(mine)
            raise

    def __exit__(self, *_: object) -> None:
        self._leave(self._waiting[0])

    def _leave(self, mine: threading.Lock) -> None:
        with self._mutex:
            first = self._waiting[0] is mine
            self._waiting.remove(mine)
            if first and self._waiting:
                self._waiting[0].release()
