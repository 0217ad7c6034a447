"""ServerProcess, with a small real server."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lagent.errors import EngineError, ModelConfigurationError, ModelTimeoutError, RateLimitError
from lagent.testing.processes import Forked
from lagent_engines import process as process_module
from lagent_engines import server as server_module
from lagent_engines.server import ServerProcess, Symptom

SCRIPT = Path(__file__).with_name("small_server.py")
get = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def command(*options: str) -> Callable[[int], list[str]]:
    return lambda port: [sys.executable, "-S", str(SCRIPT), "--port", str(port), *options]


@pytest.fixture
def make() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:

        def make(*options: str, **arguments: Any) -> ServerProcess:
            server = ServerProcess("small-server", command(*options), **arguments)
            stack.callback(server.close)
            return server

        yield make


def read(server: ServerProcess, path: str) -> str:
    with get(f"{server.url}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def is_running(pid: int) -> bool:
    try:  # a zombie is one that ended, and whose parent has not asked for it yet
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (value := what()):
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.02)
    return value


def pid_in(file: Path) -> int:
    return int(wait_until(lambda: file.exists() and file.read_text().endswith("\n") and file.read_text()))


# Running ---------------------------------------------------------------------------------------------------------


def test_start_and_close(make: Any, tmp_path: Path) -> None:
    server = make("--worker", str(tmp_path / "worker"), environment={"SMALL_SERVER": "a value"})
    assert (server.running, server.pid, server.url) == (False, None, None)
    server.start()
    assert server.running
    assert read(server, "/pid") == str(server.pid)
    assert read(server, "/variable") == "a value"
    assert server.tail(1).endswith("200 -")
    pids = [server.pid, pid_in(tmp_path / "worker")]
    server.start()
    assert server.pid == pids[0], "it was started twice"
    log = server.log
    server.close()
    assert not any(map(is_running, pids))
    assert not server.running
    assert not log.exists()
    server.start()
    assert read(server, "/pid") == str(server.pid) != str(pids[0])


def test_log_of_ones_own(make: Any, tmp_path: Path) -> None:
    server = make(log=tmp_path / "log")
    server.start()
    server.close()
    assert "the small server begins" in (tmp_path / "log").read_text()
    assert server.tail(50).startswith("the small server begins"), "colours are left in"


def test_nothing_happens_before_the_start(make: Any) -> None:
    server = make("--fail", "1")
    server.close()
    assert server.tail() == ""


def test_restart_keeps_the_port(make: Any) -> None:
    server = make()
    server.start()
    url, pid = server.url, server.pid
    server.restart()
    assert server.url == url
    assert server.pid != pid


def test_many_threads_start_one_server(make: Any) -> None:
    server = make()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: server.start(), range(8)))
        assert set(pool.map(lambda _: read(server, "/pid"), range(8))) == {str(server.pid)}


def test_proxies_are_not_for_the_own_server(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = make()
    server.start()
    assert server.running


# Failing ---------------------------------------------------------------------------------------------------------


def test_port_that_is_taken(make: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = make(port=port)
        with pytest.raises(
            ModelConfigurationError, match=rf"small-server cannot listen at port {port} .* in use. Choose another"
        ):
            server.start()
    server.start()
    assert server.url == f"http://127.0.0.1:{port}"


def test_command_that_does_not_exist(tmp_path: Path) -> None:
    server = ServerProcess("small-server", lambda port: ["/no/such/command"], log=tmp_path / "log")
    with pytest.raises(ModelConfigurationError, match="small-server cannot be started: .*/no/such/command"):
        server.start()
    server.close()


def test_end_at_the_start(make: Any) -> None:
    server = make("--fail", "3")
    with pytest.raises(EngineError, match="ended while it was starting, with exit code 3(.|\n)*\nout of memory: 3 GiB") as caught:
        server.start()
    assert isinstance(caught.value.__cause__, subprocess.CalledProcessError)
    assert server.log.exists(), "the log of a failure is kept"
    began = time.monotonic()
    with pytest.raises(EngineError, match="exit code 3") as again:
        server.start()
    assert time.monotonic() - began < 0.1, "the server was started once more"
    assert again.value is not caught.value
    server.log.unlink()


def test_known_symptom(make: Any, tmp_path: Path) -> None:
    known = [Symptom("no such thing", "nothing"), Symptom(r"out of memory.*missing\n", "buy more", RateLimitError)]
    server = make("--fail", "1", symptoms=known, log=tmp_path / "log")
    with pytest.raises(
        RateLimitError, match="It wrote 'out of memory: 3 GiB are missing': buy more. The end of its log, .*log:\n"
    ):
        server.start()


@pytest.mark.parametrize(("failures", "passing"), [(2, True), (3, True), (1, False)])
def test_symptom_that_may_pass(make: Any, tmp_path: Path, failures: int, passing: bool) -> None:
    (tmp_path / "failures").write_text(str(failures))
    known = [Symptom("out of memory", "wait", passing=passing)]
    server = make("--failures", str(tmp_path / "failures"), symptoms=known, log=tmp_path / "log")
    if failures == 2:
        server.start()
        return
    with pytest.raises(EngineError, match="out of memory': wait"):
        server.start()
    assert int((tmp_path / "failures").read_text()) == 0
    with pytest.raises(EngineError, match="out of memory': wait"):
        server.start()


def test_wrong_option(make: Any, tmp_path: Path) -> None:
    server = make("--no-such-option", log=tmp_path / "log")
    with pytest.raises(EngineError, match="exit code 2(.|\n)*unrecognized arguments: --no-such-option"):
        server.start()


def test_start_that_takes_too_long(make: Any, tmp_path: Path) -> None:
    server = make("--unready", start_timeout=0.5, log=tmp_path / "log")
    with pytest.raises(ModelTimeoutError, match="was not ready within 0.5 s; see start_timeout="):
        server.start()
    assert server.pid is None


def test_progress_is_shown_on_a_terminal(monkeypatch: Any, capsys: Any) -> None:
    with server_module._progress("x is starting") as show:
        show(5.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with server_module._progress("x is starting") as show:
        for seconds in (0.1, 1.9, 2.0, 2.9, 3.1):
            show(seconds)
    assert capsys.readouterr().err == "\rx is starting: 2 s\rx is starting: 3 s\n"


def test_killed_server(make: Any, tmp_path: Path) -> None:
    server = make("--worker", str(tmp_path / "worker"))
    server.start()
    worker = pid_in(tmp_path / "worker")
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.running)
    for _ in range(2):
        with pytest.raises(
            EngineError, match=r"ended by itself, killed by SIGKILL: .* memory was short; restart\(\) starts it again"
        ):
            server.start()
    wait_until(lambda: not is_running(worker))
    log, url = server.log, server.url
    server.restart()
    assert server.running
    assert server.url == url
    server.close()
    assert not log.exists()


def test_stubborn_server(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "_GRACE", 0.3)
    server = make("--stubborn")
    server.start()
    pid = server.pid
    server.close()
    assert not is_running(pid)


# No orphans ------------------------------------------------------------------------------------------------------

OWNER = """
import os, signal, sys, threading, time
from pathlib import Path
from lagent_engines.server import ServerProcess

server = ServerProcess("small-server", lambda port: [sys.executable, "-S", {script!r}, "--port", str(port), "--worker", {worker!r}, *{options!r}], log={log!r})
{before}
server.start()
Path({pid!r}).write_text(f"{{server.pid}}\\n")
{after}
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Any]:
    """Runs a program that owns a server; gives its process. The server's and its worker's ids come into files."""
    owners: list[subprocess.Popen[bytes]] = []

    def start(after: str = "", before: str = "", options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        code = OWNER.format(
            script=str(SCRIPT),
            worker=str(tmp_path / "worker"),
            log=str(tmp_path / "log"),
            pid=str(tmp_path / "pid"),
            before=before,
            after=after,
            options=options,
        )
        with (tmp_path / "errors").open("wb") as errors:
            owners.append(subprocess.Popen([sys.executable, "-c", code], stderr=errors))
        return owners[-1]

    yield start
    for each in owners:
        each.kill()
        each.wait()


@pytest.fixture
def pids(tmp_path: Path) -> Callable[[], list[int]]:
    return lambda: [pid_in(tmp_path / "pid"), pid_in(tmp_path / "worker")]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_owner_is_killed(owner: Any, pids: Any, number: int) -> None:
    program = owner("time.sleep(600)")
    server, worker = pids()
    program.send_signal(number)
    assert program.wait(60)
    wait_until(lambda: not is_running(server) and not is_running(worker))


def test_owner_is_killed_while_the_server_starts(owner: Any, tmp_path: Path) -> None:
    program = owner(options=("--unready",))
    worker = pid_in(tmp_path / "worker")
    program.kill()
    wait_until(lambda: not is_running(worker))


@pytest.mark.parametrize(
    ("after", "status"),
    [("", 0), ("raise RuntimeError", 1), ("os._exit(2)", 2)],
)
def test_owner_ends(owner: Any, pids: Any, after: str, status: int) -> None:
    program = owner(after)
    server, worker = pids()
    assert program.wait(60) == status
    if status < 2:
        assert not is_running(server), "an interpreter that ends in order waits for its servers"
    wait_until(lambda: not is_running(server) and not is_running(worker))


def test_interrupt_while_the_server_starts(owner: Any, tmp_path: Path) -> None:
    # What a shell starts in the background ignores the signal, and so does all that it starts.
    heeding = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    interrupt = "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()"
    program = owner(before=f"{heeding}; {interrupt}", options=("--unready",))
    worker = pid_in(tmp_path / "worker")
    assert program.wait(60)
    assert "KeyboardInterrupt" in (tmp_path / "errors").read_text()
    assert not is_running(worker)


def test_thread_that_started_it_ends(make: Any) -> None:
    server = make()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    assert read(server, "/pid") == str(server.pid)


def test_garbage_collection() -> None:
    server = ServerProcess("small-server", command())
    server.start()
    pid, log = server.pid, server.log
    del server
    gc.collect()
    assert not is_running(pid)
    assert not log.exists()


def test_close_while_it_starts(make: Any, tmp_path: Path) -> None:
    server = make("--unready", "--worker", str(tmp_path / "worker"))
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(server.start)
        worker = pid_in(tmp_path / "worker")
        server.close()
        with pytest.raises(EngineError, match="small-server was closed while it was starting"):
            started.result()
    assert not is_running(worker)


def test_supervisor_is_killed(make: Any, tmp_path: Path) -> None:
    server = make("--worker", str(tmp_path / "worker"), log=tmp_path / "log")
    server.start()
    pid, worker = server.pid, pid_in(tmp_path / "worker")
    os.kill(server._process._supervisor.pid, signal.SIGKILL)
    wait_until(lambda: not server.running)
    wait_until(lambda: not is_running(pid) and not is_running(worker))


def test_signals_to_the_supervisor_do_nothing(make: Any) -> None:
    server = make()
    server.start()
    os.killpg(server._process._supervisor.pid, signal.SIGTERM)
    assert read(server, "/pid") == str(server.pid)


@pytest.mark.parametrize("ending", ["nothing", "close", "collect"])
def test_forked_process_uses_the_server_and_leaves_it_alone(make: Any, ending: str) -> None:
    servers = [make()]
    servers[0].start()
    pid = servers[0].pid

    def work(step: Callable[[], None]) -> None:
        assert servers[0].running
        servers[0].start()
        assert read(servers[0], "/pid") == str(pid)
        if ending == "close":
            servers[0].close()
        if ending == "collect":
            servers.clear()
            gc.collect()

    Forked(work).wait()
    assert read(servers[0], "/pid") == str(pid)
    assert servers[0].pid == pid


def test_forked_process_does_not_keep_the_server(owner: Any, pids: Any, tmp_path: Path) -> None:
    program = owner(f"""child = os.fork() or time.sleep(600)
Path({str(tmp_path / "child")!r}).write_text(f"{{child}}\\n")
time.sleep(600)""")
    server, _ = pids()
    child = pid_in(tmp_path / "child")
    program.kill()
    wait_until(lambda: not is_running(server))
    assert is_running(child), "the server ended with the forked process"
    os.kill(child, signal.SIGKILL)
