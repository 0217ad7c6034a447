"""Hostile code: the caller goes on, the next call works, nothing leaks, nothing is left."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lagent.schema import ActionReturn
from lagent_actions.code import IPythonInteractive, IPythonInterpreter, Limits, PythonInterpreter, enforced

from .conftest import SECRET

LOOP = "while True: pass"

ENDS = {
    "kill itself": "import os; os.kill(os.getpid(), 9)",
    "kill its group": "import os; os.killpg(0, 9)",
    "abort": "import os; os.abort()",
    "exit at once": "import os; os._exit(3)",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "close all files": "import os; os.closerange(3, 4096)",
    "become another program": "import os; os.execv('/bin/sleep', ['sleep', '1000'])",
    "stop itself": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "ignore interrupts": f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{LOOP}",
    "swallow interrupts": "import time\nwhile True:\n    try: time.sleep(1000)\n    except BaseException: pass",
    "no way to interrupt": "sum(range(10**12))",
    "str that hangs": f"import signal\nclass A:\n    def __str__(self):\n        signal.signal(signal.SIGINT, signal.SIG_IGN)\n        {LOOP}\nA()",
}
"""Code after which the process is another one."""

FAILS = {
    "exit": ("import sys; sys.exit(3)", "SystemExit"),
    "raise base exception": ("raise BaseException('x')", "BaseException: x"),
    "raise generator exit": ("raise GeneratorExit", "GeneratorExit"),
    "endless loop": (LOOP, "TimeoutError"),
    "sleep": ("import time; time.sleep(1000)", "TimeoutError"),
    "wait for a child": ("import subprocess; subprocess.run(['sleep', '1000'])", "TimeoutError"),
    "print without end": ("while True: print('x' * 1000)", "TimeoutError"),
    "print without end to the file": ("import os\nwhile True: os.write(2, b'x' * 1000)", "TimeoutError"),
    "flood the answers": (
        "import os\nwhile True:\n    for f in range(3, 12):\n        try: os.write(f, b'x' * 60000)\n        except OSError: pass",
        "TimeoutError",
    ),
    "trace function": ("import sys; sys.settrace(lambda *a: 1 / 0); x = 1", "ZeroDivisionError"),
    "memory at once": ("x = bytearray(100 << 30)", "MemoryError"),
    "memory bit by bit": ("x = []\nwhile True: x.append(bytearray(1 << 26))", "Error"),
    "recursion": ("def f(): f()\nf()", "RecursionError"),
    "nesting": ("(" * 5000 + ")" * 5000, "Error"),
    "not Python": ("this is no code", "SyntaxError"),
    "zero bytes": ("x = 1\0", "Error"),
    "input": ("input('name? ')", "EOFError"),
    "error that cannot be shown": ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "E"),
    "result that cannot be shown": ("class A:\n    def __str__(self): raise ValueError('no')\nA()", "ValueError: no"),
    "number too long to show": ("10 ** 100000", "ValueError"),
    "kill all": ("import os; os.kill(-1, 9)", "ProcessLookupError"),
    "kill the parent": ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", "PermissionError"),
    "read the parent's environment": ("import os; print(open(f'/proc/{os.getppid()}/environ').read())", "PermissionError"),
    "passwords": ("open('/etc/shadow').read()", "PermissionError"),
    "home": ("import os; os.listdir(os.path.expanduser('~root'))", "PermissionError"),
    "raise the limits": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)",
        "Error",
    ),
    "change the root": ("import os; os.chroot('.')", "PermissionError"),
    "mount": (
        "import ctypes, os\nl = ctypes.CDLL(None, use_errno=True)\n"
        "if l.mount(b'tmpfs', b'/usr', b'tmpfs', 0, None): raise OSError(ctypes.get_errno(), 'mount')",
        "PermissionError",
    ),
    "listen": ("import socket; s = socket.socket(); s.bind(('0.0.0.0', 0)); s.listen()", "PermissionError"),
    "10 GB": ("f = open('big', 'wb')\nfor _ in range(10_000): f.write(bytes(1 << 20))", "OSError"),
    "processes": (
        "import os, time\npids = []\nfor _ in range(2000):\n    pid = os.fork()\n    if not pid: time.sleep(1000)\n    pids.append(pid)",
        "BlockingIOError",
    ),
    "threads": (
        "import threading, time\nfor _ in range(2000): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        "can't start new thread",
    ),
}
"""Code that ends in an error, and a part of it; the process goes on."""

WORKS = {
    "thread that goes on": "import threading\ndef f():\n    while True: print('still here', flush=True)\nthreading.Thread(target=f, daemon=True).start()",
    "child that goes on": "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "daemon": "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork(): time.sleep(1000)\n    os._exit(0)",
    "fork that returns": "import os; os.fork()",
    "fork bomb of 300": "import os, time\nfor _ in range(300):\n    if not os.fork(): time.sleep(1000)",
    "orphans": "import os, time\nfor _ in range(30):\n    if not os.fork():\n        if not os.fork(): time.sleep(1000)\n        os._exit(0)",
    "other environments": "import glob\nfor name in glob.glob('/proc/*/environ'):\n    try: print(open(name).read())\n    except OSError: pass",
    "own environment": "import os; print(dict(os.environ))",
    "result that cannot be pickled": "(lambda: 0, (x for x in ()), open('f', 'w'))",
    "long line": "print('x' * 10**8)",
    "long result": "'x' * 10**8",
    "broken characters": "import os; os.write(1, b'\\xff\\xfe'); print('\\ud800'); '\\ud800'",
    "no standard output": "import sys; sys.stdout.close(); sys.stdout = None",
    "no builtins": "import builtins\nfor n in dir(builtins):\n    if n in ('print', 'open', 'len', 'eval', 'exec'): delattr(builtins, n)",
    "forged answer": "import os\nfor f in range(3, 12):\n    try: os.write(f, b'{\"id\": -1}\\nnull\\n[\\n' )\n    except OSError: pass",
    "no modules": "import sys; sys.modules.clear()",
    "no folder": "import os, shutil; shutil.rmtree(os.getcwd()); ",
    "many files": "for i in range(2000): open(str(i), 'w').write('x')",
}
"""Code that gives a result, whatever it left behind."""


@pytest.fixture(scope="module", autouse=True)
def isolated() -> None:
    """Without isolation, some of this code would reach the tests themselves."""
    have = enforced()
    if not have["namespaces"] or have["landlock"] < 6:
        pytest.skip(f"this system isolates too little: {have}")


@pytest.fixture(scope="module")
def shared() -> Iterator[IPythonInteractive]:
    action = IPythonInteractive(timeout=0.5, limits=Limits(memory=1 << 29, file_size=1 << 24, processes=500))
    yield action
    action.close()


@pytest.fixture
def action(shared: IPythonInteractive, folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IPythonInteractive]:
    monkeypatch.setattr("lagent_actions.code.session.GRACE", 0.5)
    yield shared
    shared.close()


def text_of(result: ActionReturn) -> str:
    return f"{result.errmsg} {result.result}"


def check_next(action: IPythonInteractive) -> None:
    action.run("pass")  # may tell of the restart
    after = action.run("20 + 3", timeout=20)
    assert after.errmsg is None
    assert after.format_result().endswith("23")


@pytest.mark.parametrize("name", ENDS)
def test_code_that_ends_the_process(action: IPythonInteractive, name: str) -> None:
    result = action.run(ENDS[name])
    assert "the interpreter was ended" in (result.errmsg or "")
    assert SECRET not in text_of(result)
    check_next(action)


@pytest.mark.parametrize("name", FAILS)
def test_code_that_fails(action: IPythonInteractive, name: str) -> None:
    code, message = FAILS[name]
    action.run("kept = 1")
    result = action.run(code, timeout=20 if name == "processes" else None)
    assert message in (result.errmsg or "")
    assert len(result.errmsg or "") < 20_000
    assert SECRET not in text_of(result)
    check_next(action)
    assert action.run("kept", timeout=20).format_result().endswith("1")


@pytest.mark.parametrize("name", WORKS)
def test_code_that_leaves_something_behind(action: IPythonInteractive, name: str) -> None:
    result = action.run(WORKS[name], timeout=20)
    assert result.errmsg is None
    assert len(result.format_result()) < 10_000
    assert SECRET not in text_of(result)
    check_next(action)


def test_files_outside_can_neither_be_read_nor_changed(action: IPythonInteractive, tmp_path: Path) -> None:
    victim = tmp_path / "letter.txt"
    victim.write_text("dear diary")
    attempts = [
        f"open({str(victim)!r}).read()",
        f"open({str(victim)!r}, 'w')",
        f"import os; os.remove({str(victim)!r})",
        f"import os; os.truncate({str(victim)!r}, 0)",
        f"import os; os.rename({str(victim)!r}, 'mine')",
        f"import os; os.symlink({str(victim)!r}, 'link'); open('link').read()",
        f"import os; os.link({str(victim)!r}, 'hard'); open('hard').read()",
        f"import shutil; shutil.rmtree({str(tmp_path)!r})",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"import subprocess; subprocess.run(['cat', {str(victim)!r}], check=True)",
    ]
    for code in attempts:
        result = action.run(code, timeout=20)
        assert "Error" in (result.errmsg or ""), code
        assert "dear diary" not in text_of(result)
    assert victim.read_text() == "dear diary"
    assert list(tmp_path.iterdir()) == [victim]


def test_no_socket_reaches_the_caller(action: IPythonInteractive) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(0.3)
        tcp.settimeout(0.3)
        abstract = f"\\0lagent-test-{os.getpid()}"
        attempts = [
            f"import socket; socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 1).send(b'x')",
            f"import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', {udp.getsockname()[1]}))",
            "import urllib.request; urllib.request.urlopen('http://169.254.169.254/', timeout=1)",
            f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{abstract}')",
        ]
        with socket.socket(socket.AF_UNIX) as local:
            local.bind(abstract.replace("\\0", "\0"))
            local.listen()
            for code in attempts:
                assert "Error" in (action.run(code, timeout=20).errmsg or ""), code
        for server in (tcp, udp):
            with pytest.raises(TimeoutError):
                server.recvfrom(10) if server is udp else server.accept()


def test_network_and_files_can_be_allowed(folders: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("data")
    (tmp_path / "out").mkdir()
    action = IPythonInteractive(
        limits=Limits(network=True, read=[str(tmp_path)], write=[str(tmp_path / "out")], environment={"MODE": "test"})
    )
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.sendall(b"hello")

        thread = threading.Thread(target=serve)
        thread.start()
        result = action.run(
            f"import socket, os\ns = socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)\nprint(s.recv(10), os.environ['MODE'])\n"
            f"open({str(tmp_path / 'out/a')!r}, 'w').write(open({str(tmp_path / 'in.txt')!r}).read())"
        )
        thread.join()
    assert result.format_result() == "b'hello' test\n4"
    assert (tmp_path / "out/a").read_text() == "data"
    assert "PermissionError" in (action.run(f"open({str(tmp_path / 'in.txt')!r}, 'w')").errmsg or "")
    action.close()


KERNEL = {
    "kill itself": "import os; os.kill(os.getpid(), 9)",
    "quit": "quit()",
    "kill the parent": "import os; os.kill(os.getppid(), 9)",
    "endless loop": LOOP,
    "ignore interrupts": f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{LOOP}",
    "input": "input()",
    "daemon": "import os, time\nif not os.fork():\n    os.setsid(); time.sleep(1000)",
    "environments": "!cat /proc/*/environ",
    "print without end": "while True: print('x' * 1000)",
}


def test_hostile_code_in_a_kernel(folders: Path) -> None:
    action = IPythonInterpreter(timeout=2, limits=Limits(memory=2 << 30))
    for name, code in KERNEL.items():
        result = action.run(code)
        assert SECRET not in text_of(result), name
        assert len(text_of(result)) < 100_000
        after = action.run("20 + 3", timeout=20)
        assert after.errmsg is None, name
        assert after.format_result().endswith("23")
    action.close()


def test_hostile_functions(folders: Path) -> None:
    action = PythonInterpreter(timeout=1)
    for body in ("while True: pass", "import os; os._exit(0)", "import os; os.kill(-1, 9)", "raise SystemExit", "return input()"):
        assert action.run(f"def solution():\n    {body}").errmsg
    assert action.run("def solution():\n    return 41 + 1").format_result() == "42"
