"""Actions that run the code a model writes, in processes of their own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lagent.actions import BaseAction, JsonParser, tool_api
from lagent.errors import ConfigurationError
from lagent.schema import ActionReturn, ActionStatusCode, SessionId
from lagent_actions.code.kernel import KernelSession
from lagent_actions.code.process import Backend, Limits
from lagent_actions.code.session import LightSession, Outcome, Session, extract_code
from lagent_actions.code.sessions import Sessions
from lagent_actions.twin import AsyncTwin

__all__ = [
    "AsyncIPythonInteractive",
    "AsyncIPythonInterpreter",
    "AsyncPythonInterpreter",
    "IPythonInteractive",
    "IPythonInteractiveManager",
    "IPythonInterpreter",
    "PythonInterpreter",
]

_UNLIMITED_OUTPUT = 1 << 24


class _CodeAction(BaseAction):
    """What the interpreters have in common.

    Args:
        timeout: seconds that a call may take; then the code is interrupted and, if it goes on, its process killed.
        limits: what the code may use; see :class:`Limits`.
        backend: ``"process"``, or ``"bubblewrap"`` where it is installed.
        most_sessions: how many sessions may have a process at once.
    """

    def __init__(
        self,
        timeout: float,
        description: dict[str, Any] | None,
        parser: Any,
        limits: Limits | None,
        backend: Backend,
        most_sessions: int | None = None,
    ) -> None:
        super().__init__(description, parser)
        self.seconds = _positive(timeout)  # not self.timeout, at which the base class would leave the call to itself
        self.limits = limits or Limits()
        self.backend = backend
        self._sessions = Sessions(self._start, most_sessions)

    def _start(self) -> Session:
        raise NotImplementedError

    def _execute(self, command: str, timeout: float | None, session_id: SessionId | None) -> Outcome:
        return self._sessions.execute(_session(session_id), extract_code(command), timeout or self.seconds)

    def reserve(self, session_id: SessionId | None = None) -> Future[None]:
        """A place for a session, which it has when the result is there; a call does so by itself."""
        return self._sessions.reserve(_session(session_id))

    def interrupt(self, session_id: SessionId | None = None) -> None:
        """Interrupt the code that runs in a session, from another thread."""
        self._sessions.interrupt(_session(session_id))

    def reset(self, session_id: SessionId | None = None) -> None:
        """Forget the variables of a session."""
        self._sessions.close(_session(session_id))

    def close_session(self, session_id: SessionId) -> None:
        """End the process of a session."""
        self._sessions.close(session_id)

    def close(self) -> None:
        """End the processes of all sessions."""
        self._sessions.close_all()


def _positive(timeout: float) -> float:
    if timeout <= 0:
        raise ConfigurationError(f"timeout must be above 0 seconds, not {timeout}")
    return timeout


def _session(session_id: SessionId | None) -> SessionId:
    return 0 if session_id is None else session_id


def _returned(command: str, outcome: Outcome, images: Sequence[Path] = ()) -> ActionReturn:
    done = ActionReturn({"text": command})
    if outcome.error is not None:
        done.errmsg = "\n".join(filter(None, [outcome.text.strip(), outcome.error]))
        done.state = ActionStatusCode.API_ERROR
    else:
        done.result = [{"type": "text", "content": (outcome.text + (outcome.value or "")).strip()}]
        done.result += [{"type": "image", "content": str(image)} for image in images]
    return done


class IPythonInterpreter(_CodeAction):
    """Runs Python in a Jupyter kernel, one for each session, whose variables stay from call to call.

    Args:
        timeout: seconds that a call may take by default.
        user_data_dir: a folder that the code works in and may change, in place of an empty one; ``"ENV"`` for that of the environment
            variable ``USER_DATA_DIR``, if it is set.
        work_dir: where images are saved.
        max_out_len: how many characters of a result are kept.
        max_kernels: how many kernels there may be at once; a session beyond that waits until another one is closed.
        reuse_kernel, startup_rate, connection_dir: of lagent 0.5; have no effect, as no kernel serves two sessions.
        description, parser: see :class:`lagent.actions.BaseAction`.
        limits, backend: see :class:`Limits` and :class:`lagent_actions.code.process.Process`.
    """

    def __init__(
        self,
        timeout: float = 20,
        user_data_dir: str = "ENV",
        work_dir: str = "./work_dir/tmp_dir",
        description: dict[str, Any] | None = None,
        parser: Any = JsonParser,
        *,
        max_out_len: int = 32768,
        max_kernels: int | None = None,
        reuse_kernel: bool = True,
        startup_rate: int = 32,
        connection_dir: str | None = None,
        limits: Limits | None = None,
        backend: Backend = "process",
    ) -> None:
        super().__init__(timeout, description, parser, limits, backend, max_kernels)
        folder = os.environ.get("USER_DATA_DIR", "") if user_data_dir == "ENV" else user_data_dir
        if folder and not Path(folder).is_dir():
            raise ConfigurationError(f"user_data_dir is no folder: {folder!r}")
        self.user_data_dir = str(Path(folder).resolve()) if folder else None
        self.work_dir = work_dir
        self._most = max_out_len if max_out_len >= 0 else _UNLIMITED_OUTPUT

    def _start(self) -> Session:
        return KernelSession(self.limits, backend=self.backend, directory=self.user_data_dir, most=self._most)

    @tool_api
    def run(self, command: str, timeout: int | None = None, session_id: SessionId | None = None) -> ActionReturn:
        """Run Python code in a Jupyter notebook that keeps its variables from call to call. The result is what the code prints, the
        value of its last expression, and the figures it shows. There is no access to the internet.

        Args:
            command: the Python code
            timeout: seconds after which the code is interrupted
        """
        outcome = self._execute(command, timeout, session_id)
        return _returned(command, outcome, [self._save(image) for image in outcome.images])

    def _save(self, image: bytes) -> Path:
        path = Path(self.work_dir) / f"{uuid.uuid4()}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
        return path


class AsyncIPythonInterpreter(AsyncTwin, IPythonInterpreter):
    """An :class:`IPythonInterpreter` to be awaited."""


class IPythonInteractive(_CodeAction):
    """Runs Python in a process for each session, whose variables stay from call to call; lighter than :class:`IPythonInterpreter`:
    it starts at once, and gives text alone.

    Args:
        timeout: seconds that a call may take by default.
        max_out_len: how many characters of a result are kept; below 0 for any number.
        use_signals: of lagent 0.5; has no effect, as the code runs elsewhere.
        description, parser: see :class:`lagent.actions.BaseAction`.
        limits, backend: see :class:`Limits` and :class:`lagent_actions.code.process.Process`.
    """

    def __init__(
        self,
        timeout: float = 30,
        max_out_len: int = 8192,
        use_signals: bool = True,
        description: dict[str, Any] | None = None,
        parser: Any = JsonParser,
        *,
        limits: Limits | None = None,
        backend: Backend = "process",
    ) -> None:
        super().__init__(timeout, description, parser, limits, backend)
        self._most = max_out_len if max_out_len >= 0 else _UNLIMITED_OUTPUT

    def _start(self) -> Session:
        return LightSession(self.limits, backend=self.backend, most=self._most)

    @tool_api
    def run(self, command: str, timeout: int | None = None, session_id: SessionId | None = None) -> ActionReturn:
        """Run Python code in an interpreter that keeps its variables from call to call. The result is what the code prints and the
        value of its last expression.

        Args:
            command: the Python code
            timeout: seconds after which the code is interrupted
        """
        return _returned(command, self._execute(command, timeout, session_id))


class AsyncIPythonInteractive(AsyncTwin, IPythonInteractive):
    """An :class:`IPythonInteractive` to be awaited."""


class IPythonInteractiveManager(IPythonInteractive):
    """Runs pieces of code of many sessions at once.

    Args:
        max_workers: how many pieces run at the same time.
        timeout: seconds that a piece may take.
        ci_lock: of lagent 0.5; has no effect, as each session has a process of its own.
        description, parser: see :class:`lagent.actions.BaseAction`.
        options: see :class:`IPythonInteractive`.
    """

    def __init__(
        self,
        max_workers: int = 50,
        timeout: float = 20,
        ci_lock: str | None = None,
        description: dict[str, Any] | None = None,
        parser: Any = JsonParser,
        **options: Any,
    ) -> None:
        super().__init__(timeout, description=description, parser=parser, **options)
        self.max_workers = max_workers

    def __call__(self, commands: Any, session_ids: Any = None) -> Any:  # type: ignore[override]  # as in lagent 0.5
        """Run one piece of code, or a list of them.

        Args:
            commands: the code.
            session_ids: the session of each; by default, the numbers from 0.

        Returns:
            The :class:`ActionReturn`, or a list of them in the order of ``commands``.

        Raises:
            ValueError: there is not one session, different from the others, for each piece.
        """
        several = isinstance(commands, list)
        pieces = commands if several else [commands]
        ids = list(session_ids) if isinstance(session_ids, (list, tuple, range)) else [session_ids]
        if session_ids is None:
            ids = list(range(len(pieces)))
        if len(ids) != len(pieces) or len(ids) != len(set(ids)):
            raise ValueError(
                f"session_ids must name a session of its own for each of the {len(pieces)} commands, not {ids!r:.200}"
            )
        with ThreadPoolExecutor(min(len(pieces), self.max_workers) or 1) as pool:
            results = list(pool.map(lambda piece, id_: self.run(piece, session_id=id_), pieces, ids))
        return results if several else results[0]

    clear = _CodeAction.close


class PythonInterpreter(BaseAction):
    """Runs a Python function that the model writes, each time in a new process.

    Args:
        answer_symbol: the variable that holds the answer.
        answer_expr: the expression that gives the answer, unless ``answer_symbol`` or ``answer_from_stdout`` is given; if it is empty,
            the last line of the code does.
        answer_from_stdout: whether the answer is the last line that the code prints.
        timeout: seconds that a call may take.
        description, parser: see :class:`lagent.actions.BaseAction`.
        limits, backend: see :class:`Limits` and :class:`lagent_actions.code.process.Process`.
    """

    def __init__(
        self,
        answer_symbol: str | None = None,
        answer_expr: str | None = "solution()",
        answer_from_stdout: bool = False,
        timeout: float = 20,
        description: dict[str, Any] | None = None,
        parser: Any = JsonParser,
        *,
        limits: Limits | None = None,
        backend: Backend = "process",
    ) -> None:
        super().__init__(description, parser)
        self.seconds = _positive(timeout)
        self.limits = limits or Limits()
        self.backend = backend
        self.answer_symbol = answer_symbol
        self.answer_expr = answer_expr
        self.answer_from_stdout = answer_from_stdout

    @tool_api
    def run(self, command: str) -> ActionReturn:
        """Run Python code that defines a function ``solution`` without parameters, which returns the answer. Write each step of your
        reasoning as a line of the function:

        ```python
        import math

        def solution():
            sides = [3, 4]
            squares = [side**2 for side in sides]
            answer = math.sqrt(sum(squares))
            return answer
        ```

        Args:
            command: the Python code
        """
        code = extract_code(command)
        session = LightSession(self.limits, backend=self.backend)
        try:
            outcome = session.execute(code, self.seconds)
            if outcome.error is None and not self.answer_from_stdout and (answer := self.answer_symbol or self.answer_expr):
                outcome = session.execute(answer, self.seconds)
        finally:
            session.close()
        if self.answer_from_stdout:
            outcome.value = (outcome.text.strip().splitlines() or [""])[-1]
        if outcome.error is None:
            outcome.text = ""
        return _returned(f"```python\n{code}\n```", outcome)


class AsyncPythonInterpreter(AsyncTwin, PythonInterpreter):
    """A :class:`PythonInterpreter` to be awaited."""
