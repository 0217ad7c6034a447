"""Processes for code that is not trusted."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import define, field

from lagent.errors import ConfigurationError

__all__ = ["Backend", "Limits", "Process", "enforced"]

Backend = Literal["process", "bubblewrap"]

_GUARD = Path(__file__).with_name("guard.py")
_KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "TZ")
"""The environment variables that the code gets of ours; a key or password may be in any other."""

_DEVICES = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")]
_SYSTEM = [
    *(
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib32",
        "/lib64",
        "/opt",
        "/nix/store",
        "/proc",
        "/sys/devices/system",
        "/sys/fs/cgroup",
    ),
    *(f"/etc/{name}" for name in ("alternatives", "fonts", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d")),
    *(f"/etc/{name}" for name in ("localtime", "mime.types", "nsswitch.conf", "os-release", "passwd", "pki", "resolv.conf")),
    *("/etc/ssl", "/etc/timezone"),
]
"""What programs read of an ordinary Linux: nothing of a user's, and of ``/etc`` nothing that may hold a secret."""


@define(frozen=True)
class Limits:
    """What the code may use. ``None`` for no limit.

    Attributes:
        memory: bytes of address space of each process.
        cpu: seconds of processor time of each process, all calls together.
        file_size: bytes of each file it writes.
        processes: how many processes and threads there may be at once (where the system has namespaces, or we are not root).
        network: whether it may use the network.
        read, write: files and folders it may read, and may change, beyond its own folder and the installed programs.
        environment: environment variables that it gets.
    """

    memory: int | None = 4 << 30
    cpu: int | None = 1800
    file_size: int | None = 1 << 30
    processes: int = 512
    network: bool = False
    read: Sequence[str] = ()
    write: Sequence[str] = ()
    environment: Mapping[str, str] = field(factory=dict)


class Process:
    """A program under the guard, with a folder of its own that goes when it ends.

    The guard ends it, with all that it started, at :meth:`close` and when this process ends, however it does.

    Args:
        argv: the program and its arguments; every ``{directory}`` in them stands for its folder.
        limits: what it may use.
        backend: ``"process"``, or ``"bubblewrap"`` to run it in a file system of its own with the program ``bwrap``.
        descriptors: file descriptors that it gets.
        output: the file descriptor that it gets as standard output and error; without one, both are dropped.
        directory: the folder to work in, in place of its own.

    Attributes:
        directory: its own folder.
        enforced: what of the isolation is in force: ``{"namespaces": bool, "landlock": version}``.

    Raises:
        ConfigurationError: the backend is not there, or this is not Linux.
    """

    def __init__(
        self,
        argv: Sequence[str],
        limits: Limits,
        *,
        backend: Backend = "process",
        descriptors: Sequence[int] = (),
        output: int | None = None,
        directory: str | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise ConfigurationError(
                "running code needs Linux: there is no other way here to keep it from the rest of the system"
            )
        if backend not in ("process", "bubblewrap"):
            raise ConfigurationError(f"backend must be 'process' or 'bubblewrap', not {backend!r}")
        bubblewrap = shutil.which("bwrap")
        if backend == "bubblewrap" and bubblewrap is None:
            raise ConfigurationError(
                "backend='bubblewrap' needs the program bwrap: install the package 'bubblewrap' of your system"
            )
        self.directory = Path(tempfile.mkdtemp(prefix="lagent-"))
        work = directory or str(self.directory / "work")
        for name in ("work", "home", "tmp"):
            (self.directory / name).mkdir()
        argv = [part.replace("{directory}", str(self.directory)) for part in argv]
        read = _readable(limits)
        write = [str(self.directory), work, *limits.write]
        spec: dict[str, Any] = {
            "argv": [str(bubblewrap), *_bubblewrap(argv, read, write, work, limits.network)] if backend == "bubblewrap" else argv,
            "directory": str(self.directory),
            "output": output,
            "isolate": backend == "process",
            "read": read,
            "write": [*write, *_DEVICES],
            **{name: getattr(limits, name) for name in ("memory", "cpu", "file_size", "processes", "network")},
        }
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | {
            "HOME": str(self.directory / "home"),
            "TMPDIR": str(self.directory / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONIOENCODING": "utf-8:backslashreplace",
            **limits.environment,
        }
        self._owner = os.getpid()
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd=work,
                pass_fds=[*descriptors, *([output] if output is not None else [])],
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        assert self._guard.stdout
        assert self._guard.stderr
        line = self._guard.stdout.readline()
        self._guard.stdout.close()
        if not line:
            problem = self._guard.stderr.read().decode(errors="replace").strip()
            self.close()
            raise RuntimeError(f"the process for the code cannot be started: {problem[-500:]}")
        self.enforced: dict[str, Any] = json.loads(line)

    @property
    def alive(self) -> bool:
        return os.getpid() == self._owner and self._guard.poll() is None

    def interrupt(self) -> None:
        """Send the program the interrupt signal, as Ctrl-C does."""
        assert self._guard.stdin
        with contextlib.suppress(OSError, ValueError):
            self._guard.stdin.write(b"i")
            self._guard.stdin.flush()

    def close(self) -> int | None:
        """End the program and all it started; give its exit code, if it had ended by itself."""
        for pipe in (self._guard.stdin, self._guard.stderr):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()
        if os.getpid() != self._owner:
            return None  # the guard is no child of a fork of its owner
        try:
            return self._guard.wait(10)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            return self._guard.wait()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)  # should the guard have been killed


def enforced() -> dict[str, Any]:
    """What of the isolation of code is in force on this system; see :class:`Process`."""
    process = Process([sys.executable, "-c", ""], Limits())
    process.close()
    return process.enforced


def _readable(limits: Limits) -> list[str]:
    """The installed programs and libraries. Other folders from which this process imports are not among them: they are a user's."""
    own = [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent), str(Path(__file__).parent)]
    libraries = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return [*_SYSTEM, *own, *libraries, *limits.read]


def _bubblewrap(argv: list[str], read: list[str], write: list[str], work: str, network: bool) -> list[str]:
    """The arguments of ``bwrap``."""
    options = ["--unshare-all", *(["--share-net"] if network else []), "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
    for path in dict.fromkeys(read):
        if path not in ("/proc",) and not path.startswith("/sys"):
            if Path(path).is_symlink() and len(Path(path).parts) == 2:
                options += ["--symlink", str(Path(path).readlink()), path]
            else:
                options += ["--ro-bind-try", path, path]
    for path in dict.fromkeys(write):
        options += ["--bind-try", path, path]
    return [*options, "--chdir", work, "--", *argv]
