"""Processes that a test starts, watches and kills."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable

__all__ = ["Forked"]


class Forked:
    """A process that runs ``work`` and ends; all that the present one has loaded is at hand in it.

    Args:
        work: the function to run. It is given another function, to be called for every step that it has completed.
    """

    def __init__(self, work: Callable[[Callable[[], None]], None]) -> None:
        self._reports, writing = os.pipe()
        with warnings.catch_warnings():
            # Python 3.12 and later warn of forks beside threads, of whose locks the child needs none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                work(lambda: _report(writing))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writing)

    def wait_for_step(self) -> int:
        """Wait until the process has completed a step that was not waited for; gives 1, or 0 if it has ended."""
        return len(os.read(self._reports, 1))

    def wait(self) -> int:
        """Wait for the end of the process; gives the number of steps that were not waited for.

        Raises:
            AssertionError: it did not end well; its traceback went to standard error.
        """
        steps = self._rest()
        _, status = os.waitpid(self.pid, 0)
        assert status == 0, (
            f"a process ended with status {os.waitstatus_to_exitcode(status)}; see its traceback on standard error"
        )
        return steps

    def kill(self) -> int:
        """Kill the process without warning; gives the number of steps that it had completed and that were not waited for."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return self._rest()

    def _rest(self) -> int:
        steps = 0
        while piece := os.read(self._reports, 65_536):
            steps += len(piece)
        os.close(self._reports)
        return steps


def _report(pipe: int) -> None:
    os.write(pipe, b".")
