"""One conversation, to be compared between models; as a script, through both pipelines on the CPU:

python conversation.py MODEL OPTIONS
"""

from __future__ import annotations

import json
import sys
from typing import Any

from lagent.agents import Agent, AsyncAgent
from lagent.testing.kit import value_of

QUESTIONS = ["Hello, who are you?", "What is the capital of France?", "And of Italy?"]
SAMPLING: dict[str, Any] = {"temperature": 0.0, "top_k": 1, "max_new_tokens": 24}


def conversation(model: Any) -> list[tuple[str, str]]:
    """Ask every question in turn; gives senders and contents of all messages."""
    agent = (Agent if model.blocking else AsyncAgent)(model, "Be brief.", name="agent")
    for question in QUESTIONS:
        value_of(agent, question)
    return [(message.sender, message.content) for message in agent.memory.get_memory()]


if __name__ == "__main__":
    import lmdeploy_cpu  # first of all

    lmdeploy_cpu.install()
    from lagent_lmdeploy import AsyncLMDeployPipeline, LMDeployPipeline

    spoken = []
    for kind in (LMDeployPipeline, AsyncLMDeployPipeline):
        pipeline: Any = kind(sys.argv[1], **json.loads(sys.argv[2]), **SAMPLING)
        spoken.append(conversation(pipeline))
        value_of(pipeline.close)
    print(json.dumps(spoken))
