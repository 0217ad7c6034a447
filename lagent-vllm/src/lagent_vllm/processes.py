"""The processes of the engine: what they write, and their end."""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any

__all__ = ["Log", "processes_of", "tell_of_death"]

_KEPT = 1 << 16
_QUOTED = 2000


class Log:
    """Passes on what the processes started inside ``with log:`` write to stderr, and keeps its end.

    vLLM tells why a process of its own has failed nowhere else.
    """

    def __init__(self) -> None:
        self._text = bytearray()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Log:
        from multiprocessing import resource_tracker  # which Windows does not have

        # It stays when the engine ends, and would inherit the pipe.
        resource_tracker.ensure_running()
        sys.stderr.flush()
        self._stderr = os.dup(2)
        read, write = os.pipe()
        os.dup2(write, 2)
        os.close(write)
        self._thread = threading.Thread(
            target=self._pass_on, args=(read, os.dup(self._stderr)), name="lagent-vllm-log", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._stderr, 2)
        os.close(self._stderr)
        if kind is None:
            self._text.clear()  # what is written at a start that went well explains no later death
        else:
            self.close()

    def tail(self) -> str:
        """The end of what was written."""
        return self._text.decode(errors="replace")

    def quoted(self) -> str:
        """The end of what was written, for an error message."""
        text = self.tail().strip()[-_QUOTED:]
        return f"\nThe last that its processes wrote:\n{text}" if text else ""

    def close(self) -> None:
        """Wait until all that was written is passed on, which is when the processes are gone."""
        if self._thread is not None:
            self._thread.join(5)

    def _pass_on(self, source: int, target: int) -> None:
        with open(source, "rb", buffering=0) as written, open(target, "wb", buffering=0) as stderr:
            while data := written.read(_KEPT):
                self._text += data
                del self._text[:-_KEPT]
                try:
                    stderr.write(data)
                except OSError:  # nobody reads it; the engine must not hang for that
                    continue


def processes_of(engine: Any) -> list[BaseProcess]:
    """The processes of an ``LLMEngine`` or ``AsyncLLM``; whoever stops it has to join them, as vLLM does not."""
    resources = getattr(engine.engine_core, "resources", None)
    return list(getattr(getattr(resources, "engine_manager", None), "processes", ()))


def tell_of_death(engine: Any) -> None:
    """Let the steps of an ``LLMEngine`` fail once its process is gone.

    If it was killed, vLLM's client for synchronous callers (0.30 to 0.33) waits for its output for ever.
    """
    from vllm.v1.engine.exceptions import EngineDeadError

    sentinels = [process.sentinel for process in processes_of(engine)]
    if not sentinels:
        return
    outputs = engine.engine_core.outputs_queue

    def watch() -> None:
        connection.wait(sentinels)
        outputs.put(EngineDeadError())

    threading.Thread(target=watch, name="lagent-vllm-watch", daemon=True).start()
