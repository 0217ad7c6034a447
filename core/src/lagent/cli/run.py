"""``lagent run``: one question, one answer."""

from __future__ import annotations

import argparse

from lagent.cli.config import load_agent
from lagent.cli.conversation import Progress, Transcript, ask, failure_of
from lagent.errors import LagentError
from lagent.schema import AgentMessage, AgentStatusCode

__all__ = ["RunCommand"]


class RunCommand:
    """Shows the conversation as it happens, and at the end the answer with its parsed structure."""

    help = "ask an agent one question and show the conversation"
    examples = {  # noqa: RUF012
        'lagent run "What is 37*412?"': "ask the default agent, on the embedded model",
        'lagent run agent.toml "What is 37*412?"': "ask the agent of a file",
    }

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("config", nargs="?", help="the agent, a .toml, .yaml or .json file (default: one that can calculate)")
        parser.add_argument("question", help="what to ask")
        parser.add_argument("--json", action="store_true", help="write each message as a line of JSON, the answer last")

    def run(self, args: argparse.Namespace) -> int:
        show = _show_json if args.json else Transcript().show
        with Progress() as progress:
            with progress("the model to load"):
                agent = load_agent(args.config)
            show(AgentMessage(args.question))
            messages = ask(agent, args.question, "run", progress, show)
        if not args.json:
            print(f"\n{messages[-1]}")
        results = [message for message in messages if message.stream_state == AgentStatusCode.PLUGIN_RETURN]
        if results and (failure := failure_of(results[-1])):
            raise LagentError(f"{failure}; the answer was made without its result")
        return 0


def _show_json(message: AgentMessage) -> None:
    if message.stream_state != AgentStatusCode.STREAM_ING:
        print(message.model_dump_json(), flush=True)
