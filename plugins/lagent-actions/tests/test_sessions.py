"""Sessions of code: separate, reused, replaced when they die, and gone with the program that used them."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lagent.actions import ActionExecutor, AsyncActionExecutor
from lagent.agents import Agent
from lagent.errors import ConfigurationError
from lagent.schema import ActionStatusCode, AgentMessage
from lagent_actions.code import (
    AsyncIPythonInteractive,
    AsyncIPythonInterpreter,
    AsyncPythonInterpreter,
    IPythonInteractive,
    IPythonInteractiveManager,
    IPythonInterpreter,
    Limits,
    PythonInterpreter,
    enforced,
)
from lagent_actions.code.process import _GUARD as GUARD
from lagent_actions.code.session import extract_code

from .conftest import processes_of, wait_until


def text(result: Any) -> str:
    assert result.errmsg is None, result.errmsg
    return str(result.format_result())


@pytest.fixture(params=[IPythonInteractive, IPythonInterpreter])
def action(request: pytest.FixtureRequest, folders: Path, tmp_path: Path) -> Any:
    options = {"work_dir": str(tmp_path)} if request.param is IPythonInterpreter else {}
    action = request.param(**options)
    yield action
    action.close()


def test_variables_stay_in_their_session(action: Any) -> None:
    assert text(action({"command": "x = 41\nprint('one')\nx + 1"}, session_id="a")) == "one\n42"
    assert text(action({"command": "```python\nx\n```"}, session_id="a")) == "41"
    other = action({"command": "x"}, session_id="b")
    assert other.state == ActionStatusCode.API_ERROR
    assert "NameError: name 'x' is not defined" in other.errmsg
    assert "\x1b" not in other.errmsg
    action.reset("a")
    assert "NameError" in action({"command": "x"}, session_id="a").errmsg


def test_a_killed_process_is_noticed_and_replaced(action: Any, folders: Path) -> None:
    assert text(action.run("x = 1")) == ""
    (folder,) = folders.iterdir()
    for entry in Path("/proc").iterdir():  # everything of the session
        if entry.name.isdigit():
            try:
                if f"HOME={folder}/home".encode() in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue
    wait_until(lambda: not processes_of(folders))
    again = action.run("'x' in globals()")
    told = again.errmsg or again.format_result()
    assert "are gone" in told  # whether the end was seen before or during the call
    assert "NameError" in action.run("x").errmsg
    assert text(action.run("1 + 1")) == "2"


def test_the_end_of_the_program_ends_the_sessions(folders: Path) -> None:
    code = f"""
import tempfile, time
tempfile.tempdir = {str(folders)!r}
from lagent_actions.code import IPythonInteractive, IPythonInterpreter
kept = [IPythonInteractive(), IPythonInterpreter()]
for action in kept:
    result = action.run("import subprocess; p = subprocess.Popen(['sleep', '1000'], start_new_session=True); print('up')")
    assert result.errmsg is None, result.errmsg
print("ready", flush=True)
time.sleep(1000)
"""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert program.stdout
    assert program.stdout.readline() == "ready\n"
    assert len(processes_of(folders)) >= 6  # guard, init, interpreter, its child; twice
    program.kill()
    program.wait()
    program.stdout.close()
    wait_until(lambda: not processes_of(folders) and not list(folders.iterdir()))


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.engine)])
def test_sessions_leave_nothing(folders: Path, count: int) -> None:
    action = IPythonInteractive()
    action.run("1", session_id=-1)
    action.close_session(-1)
    before, threads = descriptors(), threading.active_count()

    def one(number: int) -> None:
        assert text(action.run(f"x = {number}\nx", session_id=number)) == str(number)
        action.close_session(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(count)))
    assert descriptors() == before
    assert threading.active_count() == threads
    assert not list(folders.iterdir())
    assert not processes_of(folders)


@pytest.mark.parametrize("count", [2, pytest.param(200, marks=[pytest.mark.engine, pytest.mark.timeout(1200)])])
def test_kernels_leave_nothing(folders: Path, count: int) -> None:
    action = IPythonInterpreter()
    action.run("1", session_id=-1)
    action.close_session(-1)
    gc.collect()
    before, threads = descriptors(), threading.active_count()
    for number in range(count):
        assert text(action.run(f"{number}", session_id=number)) == str(number)
        action.close_session(number)
    gc.collect()
    assert (descriptors(), threading.active_count()) == (before, threads)
    assert not list(folders.iterdir())
    assert not processes_of(folders)


async def test_more_sessions_than_kernels_wait_for_each_other(folders: Path) -> None:
    action = AsyncIPythonInterpreter(max_kernels=1)
    most = 0

    async def solve(number: int) -> str:
        nonlocal most
        await action.run(f"x = {number}", session_id=number)
        most = max(most, len(entries(folders)))
        result = text(await action.run("x", session_id=number))
        await asyncio.to_thread(action.close_session, number)
        return result

    assert await asyncio.gather(*map(solve, range(3))) == ["0", "1", "2"]
    assert most == 1


def test_a_program_with_many_open_files_can_run_code(folders: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    opened = [os.dup(0) for _ in range(1100)]
    action = IPythonInteractive()
    try:
        assert max(opened) > 1023
        assert text(action.run("1 + 1")) == "2"
    finally:
        action.close()
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("wait", [0.0, 0.5])
def test_closing_everything_ends_what_runs_and_what_starts(folders: Path, wait: float) -> None:
    action = IPythonInteractive()
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(action.run, "while True: pass", timeout=60, session_id=number) for number in range(2)]
        wait_until(lambda: len(entries(folders)) == 2)
        time.sleep(wait)
        action.close()
        assert ["was ended" in future.result().errmsg for future in running] == [True, True]
    assert not entries(folders)


def test_a_session_that_was_closed_begins_anew_for_those_who_wait(folders: Path) -> None:
    action = IPythonInteractive()
    action.run("x = 1", session_id=0)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(action.run, "import time; time.sleep(0.5); x", session_id=0)
        time.sleep(0.1)
        closing = pool.submit(action.close_session, 0)
        time.sleep(0.1)
        second = pool.submit(action.run, "x", session_id=0)
        assert text(first.result()) == "1"
        closing.result()
        assert second.result().errmsg is None or "NameError" in second.result().errmsg  # whichever came first
    action.close_session(0)
    assert not entries(folders)


def test_an_action_that_nobody_has_any_more_ends_its_sessions(folders: Path) -> None:
    action = IPythonInteractive()
    action.run("x = 1")
    assert entries(folders)
    del action
    gc.collect()
    assert not entries(folders)


def test_sessions_run_side_by_side_and_calls_of_one_in_turn(folders: Path) -> None:
    action = IPythonInteractive()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(action.run, "import time; time.sleep(0.3); x = 1", session_id=0)
        time.sleep(0.1)
        second = pool.submit(action.run, "x", session_id=0)
        other = pool.submit(action.run, "2", session_id=1)
        assert text(other.result()) == "2"
        assert text(first.result()) == ""
        assert text(second.result()) == "1"
    action.close()


def test_interrupted_code_keeps_its_variables(action: Any) -> None:
    result = action.run("x = 5\nwhile True: pass", timeout=1)
    assert result.errmsg.startswith("TimeoutError: the code did not end within 1 seconds")
    assert text(action.run("x")) == "5"


def test_figures_become_files_and_tables_text(folders: Path, tmp_path: Path) -> None:
    action = IPythonInterpreter(work_dir=str(tmp_path / "images"), timeout=60)
    result = action.run(
        "import matplotlib.pyplot as plt, pandas as pd\nplt.plot([1, 2]); plt.show()\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})"
    )
    assert result.errmsg is None
    kinds = [part["type"] for part in result.result]
    assert kinds == ["text", "image"]
    assert result.result[0]["content"].split() == ["a", "b", "0", "1", "x", "1", "2", "y"]
    assert Path(result.result[1]["content"]).read_bytes().startswith(b"\x89PNG")
    assert text(action.run("%env MPLBACKEND")) != ""
    assert text(action.run("!echo from the shell")) == "from the shell"
    action.close()


def test_user_data_is_where_the_code_works(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.csv").write_text("a,b")
    monkeypatch.setenv("USER_DATA_DIR", str(tmp_path))
    action = IPythonInterpreter()
    assert text(action.run("print(open('data.csv').read()); open('out.txt', 'w').write('done')")) == "a,b\n4"
    action.close()
    assert (tmp_path / "out.txt").read_text() == "done"
    with pytest.raises(ConfigurationError, match="user_data_dir is no folder"):
        IPythonInterpreter(user_data_dir=str(tmp_path / "none"))


async def test_the_asynchronous_twins_do_not_block_and_can_be_cancelled(folders: Path) -> None:
    light, kernel, function = AsyncIPythonInteractive(), AsyncIPythonInterpreter(), AsyncPythonInterpreter()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticker = asyncio.create_task(tick())
    results = await asyncio.gather(
        light({"command": "1 + 1"}, session_id=1),
        light.run("import time; time.sleep(0.5); 4", session_id=2),
        kernel({"command": "1 + 2"}, session_id="k"),
        function.run("def solution(): return 5"),
    )
    assert [text(result) for result in results] == ["2", "4", "3", "5"]
    assert ticks > 10
    task = asyncio.create_task(light.run("x = 3\nwhile True: pass", timeout=60, session_id=1))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert text(await light.run("x", session_id=1)) == "3"
    ticker.cancel()
    for action in (light, kernel):
        action.close()


async def test_executors_of_either_colour_run_actions_of_either(folders: Path) -> None:
    message = AgentMessage({"name": "Code", "parameters": {"command": "6 * 7"}})
    plain = ActionExecutor([AsyncIPythonInteractive(description={"name": "Code"})])
    assert text((await asyncio.to_thread(plain, message, session_id="s")).content) == "42"
    other = AsyncActionExecutor([IPythonInteractive(description={"name": "Code"})])
    assert text((await other(message, session_id="s")).content) == "42"
    assert len(entries(folders)) == 2
    plain.close_session("s")
    await other.close_session("s")
    assert not entries(folders)


def test_closing_the_session_of_an_agent_closes_its_interpreter(folders: Path) -> None:
    class Coder(Agent):
        def __init__(self) -> None:
            super().__init__()
            self.executor = ActionExecutor(IPythonInteractive())

        def forward(self, message: AgentMessage, session_id: Any = 0, **kwargs: Any) -> Any:
            return self.executor(AgentMessage({"name": "IPythonInteractive", "parameters": message.content}), session_id)

    coder = Coder()
    with coder.session("s") as session:
        assert text(session(AgentMessage({"command": "1"})).content) == "1"
        assert list(folders.iterdir())
    assert not list(folders.iterdir())


def test_functions_give_their_answer(folders: Path) -> None:
    code = "```python\ndef solution():\n    print('thinking')\n    return {'a': 1}\n```"
    assert text(PythonInterpreter()({"command": code})) == "{'a': 1}"
    assert text(PythonInterpreter(answer_symbol="answer").run("answer = 'yes'")) == "yes"
    assert text(PythonInterpreter(answer_from_stdout=True).run("print('no')\nprint('yes')")) == "yes"
    assert text(PythonInterpreter(answer_expr=None).run("x = 2\nx + 1")) == "3"
    failed = PythonInterpreter().run("x = 1")
    assert failed.state == ActionStatusCode.API_ERROR
    assert "NameError: name 'solution' is not defined" in failed.errmsg


def test_the_manager_runs_many_sessions(folders: Path) -> None:
    manager = IPythonInteractiveManager()
    results = manager([f"x = {i}\nx" for i in range(5)])
    assert [text(result) for result in results] == ["0", "1", "2", "3", "4"]
    assert text(manager("x", 3)) == "3"
    with pytest.raises(ValueError, match="session of its own"):
        manager(["1", "2"], [1, 1])
    manager.clear()


def test_without_bubblewrap_nothing_is_left_behind(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    action = IPythonInteractive(backend="bubblewrap")
    with pytest.raises(ConfigurationError, match="needs the program bwrap"):
        action._sessions.execute(0, "1", 1)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="the program bwrap is not installed")
def test_bubblewrap(folders: Path, tmp_path: Path) -> None:
    action = IPythonInteractive(backend="bubblewrap", limits=Limits(memory=1 << 30))
    (tmp_path / "secret").write_text("x")
    assert text(action.run("open('f', 'w').write('abc')")) == "3"
    assert "FileNotFoundError" in action.run(f"open({str(tmp_path / 'secret')!r})").errmsg
    assert "TimeoutError" in action.run("while True: pass", timeout=1).errmsg
    assert text(action.run("open('f').read()")) == "abc"
    action.close()


def test_orphans_are_found_where_there_are_no_namespaces(folders: Path) -> None:
    (folders / "f").mkdir()
    code = "import os, time\nfor _ in range(5):\n    if not os.fork():\n        os.setsid()\n        if not os.fork(): time.sleep(1000)\n        os._exit(0)\nos.write(1, b'up')\ntime.sleep(1000)"
    up, output = os.pipe()
    spec = {
        "argv": [sys.executable, "-c", code],
        "directory": str(folders / "f"),
        "output": output,
        "isolate": False,
        "network": False,
        **{"read": [], "write": [], "memory": None, "cpu": None, "file_size": None, "processes": 64},
    }
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD), json.dumps(spec)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={"HOME": f"{folders}/f"},
        pass_fds=[output],
    )
    assert os.read(up, 2) == b"up"
    wait_until(lambda: len(processes_of(folders)) == 8)  # guard, init, program, five orphans
    guard.communicate()  # closes its input
    assert not processes_of(folders)
    for descriptor in (up, output):
        os.close(descriptor)


def test_the_project_around_the_program_cannot_be_read(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    monkeypatch.syspath_prepend(str(tmp_path))
    action = IPythonInteractive()
    assert "PermissionError" in action.run(f"open({str(tmp_path / '.env')!r})").errmsg
    action.close()


def test_what_is_enforced_can_be_asked(folders: Path) -> None:
    assert set(enforced()) == {"namespaces", "landlock"}


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("1 + 1", "1 + 1"),
        ("Well:\n```python\nx = 1\nx\n```\nDone.", "x = 1\nx\n"),
        ("```\ny\n", "y\n"),
        (json.dumps({"code": "z"}), "z"),
        ("`a`", "a"),
        ("print('`not code`')", "print('`not code`')"),
        ("{1: 2}", "{1: 2}"),
    ],
)
def test_code_is_taken_out_of_what_models_write(written: str, code: str) -> None:
    assert extract_code(written) == code


@pytest.mark.parametrize("make", [lambda: IPythonInteractive(timeout=0), lambda: PythonInterpreter(timeout=-1)])
def test_a_time_limit_is_positive(make: Any) -> None:
    with pytest.raises(ConfigurationError, match="above 0 seconds"):
        make()
