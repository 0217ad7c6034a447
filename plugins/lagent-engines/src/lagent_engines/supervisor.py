"""Starts a server and ends it when the process that wanted it has gone, for whatever reason; run as a script.

    python supervisor.py SECONDS COMMAND…

Standard input is a pipe that the owner holds open and writes nothing to: its end means that the server is to end, and it comes even
where the owner was killed. Standard output takes lines of JSON: ``{"pid": …}`` or ``{"error": …}`` once, ``{"ended": …}`` when the server
has ended, with its exit code, negative for a signal. Standard error becomes the server's output.

It imports the standard library only, as it starts with every server.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

_ADOPT_ORPHANS = 36
"""``PR_SET_CHILD_SUBREAPER`` of prctl(2)."""


def main() -> None:
    seconds, command = float(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":  # so that what the server leaves behind can be waited for
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stay)  # not SIG_IGN, which the server would inherit
    try:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), start_new_session=True)
    except OSError as error:
        return _report(error=str(error))
    _report(pid=server.pid)
    ended = threading.Event()
    threading.Thread(target=_end_with_owner, args=(server.pid, ended, seconds), daemon=True).start()
    while True:
        child, status = os.wait()
        if child == server.pid:
            break
    ended.set()
    _report(ended=os.waitstatus_to_exitcode(status))
    _end_group(server.pid, seconds)
    return None


def _stay(*_: object) -> None:
    """The end of the server is the end of its supervisor, and nothing else."""


def _report(**line: object) -> None:
    with contextlib.suppress(BrokenPipeError):  # the owner has gone
        os.write(1, json.dumps(line).encode() + b"\n")


def _end_with_owner(server: int, ended: threading.Event, seconds: float) -> None:
    while os.read(0, 1):
        pass
    if not ended.is_set():
        os.kill(server, signal.SIGTERM)  # to the server alone: it ends its workers in order
    if not ended.wait(seconds):
        os.kill(server, signal.SIGKILL)


def _end_group(group: int, seconds: float) -> None:
    """End the processes that a server left behind; in peace, as one of them may be tidying up shared memory."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + seconds
        try:
            os.killpg(group, number)
            while time.monotonic() < deadline:
                _reap()
                os.killpg(group, 0)
                time.sleep(0.02)
        except ProcessLookupError:
            return


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
