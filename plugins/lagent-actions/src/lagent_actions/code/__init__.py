"""Running the code that models write, in processes of their own."""

from lagent_actions.code.interpreters import (
    AsyncIPythonInteractive,
    AsyncIPythonInterpreter,
    AsyncPythonInterpreter,
    IPythonInteractive,
    IPythonInteractiveManager,
    IPythonInterpreter,
    PythonInterpreter,
)
from lagent_actions.code.process import Limits, enforced

__all__ = [
    "AsyncIPythonInteractive",
    "AsyncIPythonInterpreter",
    "AsyncPythonInterpreter",
    "IPythonInteractive",
    "IPythonInteractiveManager",
    "IPythonInterpreter",
    "Limits",
    "PythonInterpreter",
    "enforced",
]
