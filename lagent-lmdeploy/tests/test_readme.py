"""The README's code for servers; that for models in this process is run in ``in_process/``."""

from __future__ import annotations

import os
from typing import Any

import pytest

from lagent_engines.environments import engine_python, small_model

from . import readme
from .test_server import SHIM

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]


def test_a_server_and_a_client_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    if (python := engine_python("lmdeploy")) is None:
        pytest.skip("LAGENT_LMDEPLOY_PYTHON does not name the interpreter of an environment with LMDeploy")
    path = os.environ.get("LAGENT_LMDEPLOY_MODEL") or small_model(python)
    served, client = (block.replace("Qwen/Qwen3-8B", path) for block in readme.blocks()[2:])
    served = served.replace("serve_cfg=", f"max_new_tokens=8, python={str(python)!r}, environment={SHIM}, serve_cfg=")
    served = served.replace('"session_len": 8192', '"session_len": 1024')
    served, closing, _ = served.partition("llm.close()")
    names: dict[str, Any] = {}
    exec(served, names)
    try:
        llm = names["llm"]
        answer, reached = capsys.readouterr().out.splitlines()[-2:]
        assert answer
        assert reached == f"{llm.url} {llm.key}"
        client = client.replace("http://localhost:23333", llm.url).replace("the key", llm.key)
        exec(client.replace('key="', 'max_new_tokens=8, key="'), {})
        assert capsys.readouterr().out.strip()
    finally:
        exec(closing, names)
