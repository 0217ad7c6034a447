"""A program that runs another one isolated and limited, and ends it with everything it started.

It stands between the process that uses lagent and the code of a model: its arguments are one JSON object (see
:class:`lagent_actions.code.process.Process`), its standard input is the line to its owner. The byte ``i`` interrupts the program; the
end of that input, or of the owner, ends it. It is a program of its own, with nothing but the standard library, because hardly
anything may be done between fork and exec of a process with threads.

guard ─ init (the first process of a PID namespace, where there may be one) ─ the program

Where the kernel allows it, the program gets user, PID, mount, IPC and network namespaces (:manpage:`namespaces(7)`), and Landlock
(:manpage:`landlock(7)`) limits it to the files it was given. What is in force is written to standard output as JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import stat
import struct
import sys
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)

_PDEATHSIG, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS = 1, 24, 36, 38
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_HIDDEN = (b"/run", b"/dev/shm")
"""What holds sockets and shared memory of other programs; an empty file system covers it."""


def main() -> None:
    spec = json.loads(sys.argv[1])
    owner = os.pidfd_open(os.getppid())
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)  # orphans of the program become children of the guard, wherever they hide
    isolated = spec["isolate"] and _unshare(spec["network"])
    init = os.fork()
    if init == 0:
        _run(_be_init, spec, isolated)
    os.write(1, json.dumps({"namespaces": isolated, "landlock": _landlock_version() if spec["isolate"] else 0}).encode() + b"\n")
    _watch(owner, init)
    code = _end(init)
    import shutil

    shutil.rmtree(spec["directory"], ignore_errors=True)
    os._exit(code)


def _watch(owner: int, init: int) -> None:
    """Wait until the program has ended or is not wanted any more."""
    ended = os.pidfd_open(init)
    while True:
        ready, _, _ = select.select([0, owner, ended], [], [])
        if ended in ready or owner in ready or not os.read(0, 1):
            return
        os.kill(init, signal.SIGINT)


def _end(init: int) -> int:
    """Kill everything and give the exit code of the program."""
    code = 0
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == init:
                code = os.waitstatus_to_exitcode(status)
            if pid == 0:
                for child in _children() or [init]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                pid, status = os.waitpid(-1, 0)
                if pid == init and code == 0:
                    code = max(os.waitstatus_to_exitcode(status), 0)
    return code


def _children() -> list[int]:
    # In a PID namespace of the program, this /proc tells other numbers; there the end of init ends all.
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _run(function: Any, *args: Any) -> None:
    """Call in a new process, which never returns to the code of its parent."""
    try:
        function(*args)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(127)


def _be_init(spec: dict[str, Any], isolated: bool) -> None:
    """Start the program, hand interrupts to it, take in orphans; end with it."""
    _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if isolated:
        _libc.mount(b"proc", b"/proc", b"proc", 0, None)
        for path in _HIDDEN:
            _libc.mount(b"tmpfs", path, b"tmpfs", 0, b"size=64m")
        _libc.mount(b"devpts", b"/dev/pts", b"devpts", 0, b"ptmxmode=0666")
        with contextlib.suppress(OSError), open("/proc/sys/kernel/pid_max", "w") as file:  # noqa: PTH123
            file.write(str(max(spec["processes"] + 300, 301)))  # the numbers below 300 are not given twice
    program = os.fork()
    if program == 0:
        _run(_be_program, spec, isolated)
    with contextlib.suppress(OSError):
        os.setpgid(program, program)
    signal.signal(signal.SIGINT, lambda *_: os.killpg(program, signal.SIGINT))
    while True:
        pid, status = os.wait()
        if pid == program:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _be_program(spec: dict[str, Any], isolated: bool) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until the program wants it; bwrap, which is of its group too, never does
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(os.devnull, os.O_WRONLY) if spec["output"] is None else spec["output"]
    os.dup2(output, 1)
    os.dup2(output, 2)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: spec["memory"],
        resource.RLIMIT_CPU: spec["cpu"],
        resource.RLIMIT_FSIZE: spec["file_size"],
        resource.RLIMIT_NPROC: spec["processes"] if isolated or os.getuid() else None,
    }
    for which, limit in limits.items():
        if limit is not None:
            _, most = resource.getrlimit(which)
            limit = int(limit) if most == resource.RLIM_INFINITY else min(int(limit), most)
            resource.setrlimit(which, (limit, limit))
    _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    if spec["isolate"]:
        for capability in range(64):
            _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
        _landlock(spec["read"], [*spec["write"], *(["/dev/shm", "/dev/pts", "/dev/ptmx"] if isolated else [])], spec["network"])
    os.execve(spec["argv"][0], spec["argv"], os.environ)


# Namespaces ------------------------------------------------------------------------------------------------------


def _unshare(network: bool) -> bool:
    """Leave the namespaces of the owner, if the system lets us."""
    uid, gid = os.getuid(), os.getgid()
    flags = _NEWUSER | _NEWPID | _NEWNS | _NEWIPC | (0 if network else _NEWNET)
    if _libc.unshare(flags) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)
    return True


# Landlock --------------------------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ_FILE, _READ_DIR = 1 << 0 | 1 << 2, 1 << 3  # files may be read and executed
_ANY_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many rights on files each version knows; 16 from version 5 on


def _landlock_version() -> int:
    return max(int(_libc.syscall(_CREATE_RULESET, None, 0, 1)), 0)


def _landlock(read: list[str], write: list[str], network: bool) -> None:
    """Allow nothing but reading ``read`` and doing anything with ``write``; no TCP; no signals to processes outside."""
    version = _landlock_version()
    if not version:
        return
    rights = (1 << _FS_RIGHTS.get(version, 16)) - 1
    tcp, scopes = (0 if network else 3), 3
    attributes = struct.pack("QQQ", rights, tcp, scopes)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    for paths, allowed in ((read, _READ_FILE | _READ_DIR), (write, rights)):
        for path in paths:
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                    continue
                raise
            own = allowed if stat.S_ISDIR(os.fstat(descriptor).st_mode) else allowed & _ANY_FILE
            if _libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", own & rights, descriptor), 0) != 0:
                raise OSError(ctypes.get_errno(), "landlock_add_rule", path)
            os.close(descriptor)
    if _libc.syscall(_RESTRICT_SELF, rules, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(rules)


if __name__ == "__main__":
    main()
