"""The tests in ``in_process/`` run in the environment of the engine; see ``test_in_process.py``."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("vllm") else ["in_process"]
