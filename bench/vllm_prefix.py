"""What vLLM's prefix cache serves over twenty turns with tool calls: lagent-vllm beside lagent 0.5's way of building prompts.

    LAGENT_VLLM_PYTHON=… python bench/vllm_prefix.py

Each turn is a question, a tool call by the model, the tool's result and an answer. lagent-vllm takes over the tokens of the turn before and
renders and tokenises what is new; lagent 0.5 renders the whole conversation with its own ``LMTemplateParser`` at every request, and vLLM
tokenises the text. Both send the same conversation to the same engine, which starts each with an empty cache. Exits with 1 if a request of
lagent-vllm after the first gets less than 95 % of its prompt from the cache, whole blocks allowed for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from engine import enter
from peer import UPSTREAM, python_with

BLOCK = 32
LEAST = 0.95
CITIES = """Rome Oslo Paris Cairo Lima Delhi Tokyo Quito Seoul Bonn Madrid Vienna Prague Dublin Lisbon Athens Warsaw Sofia Minsk
Ankara""".split()  # noqa: SIM905
LEARNT = ("Bern", "Kyiv", "Riga", "Baku")
"""A small model has to be shown how it is done."""
SYSTEM = "You answer questions about the weather in the cities of the world. " + " ".join(
    f"Station {number} measures temperature, wind and rain near the town of Number {number}." for number in range(60)
)
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ENGINE = {"max_model_len": 8192, "block_size": BLOCK, "kv_cache_memory_bytes": 2**29, "enforce_eager": True}

# Runs with lagent 0.5: the prompts that it makes of conversations, and how long it takes.
PROGRAM = """
import json, sys, time
from lagent.llms.base_llm import LMTemplateParser
parser = LMTemplateParser([
    *({"role": role, "begin": f"<|im_start|>{role}\\n", "end": "<|im_end|>\\n"} for role in ("system", "user", "assistant")),
    {"role": "tool", "fallback_role": "user"},
])
prompts = []
for dialog in json.load(sys.stdin):
    start = time.perf_counter()
    prompts.append((parser(dialog), time.perf_counter() - start))
json.dump(prompts, sys.stdout)
"""


def main() -> int:
    path = enter("vllm")
    # In one process, which shows the engine's own counts at once.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from lagent_vllm import VllmModel

    model = VllmModel(path, vllm_cfg=ENGINE, temperature=0.0, top_p=None, top_k=None, max_new_tokens=48, load="now")
    ours, dialogs = converse(model)
    model._engine._engine.reset_prefix_cache()
    theirs = resend(model, dialogs)
    model.close()

    print("request  prompt  cached  of it  new in ms | 0.5: prompt  cached  of it  new in ms")
    for number, (mine, peer) in enumerate(zip(ours, theirs, strict=True)):
        cells = [f"{n:7}{c:8}{c / n:7.1%}{1e3 * t:11.2f}" for n, c, t in (mine, peer)]
        print(f"{number // 2 + 1:4}{'ab'[number % 2]}  {cells[0]} | {cells[1]}")
    least = min(cached / prompt for prompt, cached, _ in ours[1:])
    allowed = min((cached + BLOCK - 1) / prompt for prompt, cached, _ in ours[1:])
    print(
        f"after the first request at least {least:.1%} came from the cache, {allowed:.1%} with whole blocks allowed for; {LEAST:.0%} are wanted"
    )
    return 0 if allowed >= LEAST else 1


def converse(model: Any) -> tuple[list[tuple[int, int, float]], list[list[dict[str, str]]]]:
    """Lead the conversation. Of each request: prompt tokens, cached ones, seconds for the prompt; and the conversation as lagent 0.5 sees it."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    for city in LEARNT:
        messages += [question(city), call(city, f"call {city}"), result(f"call {city}")]
        messages.append({"role": "assistant", "content": f"It is sunny in {city}."})
    plain = [
        {"role": "system", "content": f"{SYSTEM}\n\nTools:\n{json.dumps(TOOL)}"},
        *({**message, "content": as_text(message)} for message in messages[1:]),
    ]
    rows, dialogs = [], []

    def ask(**options: Any) -> Any:
        dialogs.append([{"role": message["role"], "content": message["content"]} for message in plain])
        start = time.perf_counter()
        model._prompts.make(messages, [TOOL], None, "bench")
        seconds = time.perf_counter() - start
        response = model.chat(messages, "bench", tools=[TOOL], return_token_ids=True, **options)
        rows.append((response.usage.prompt_tokens, response.usage.cached_tokens, seconds))
        raw = model._tokenizer.decode(response.extra["token_ids"]).removesuffix("<|im_end|>")
        plain.append({"role": "assistant", "content": raw})
        return response

    for city in CITIES:
        messages.append(question(city))
        plain.append(question(city))
        response = ask()
        called = response.tool_calls[0]
        messages.append(call(city, called.id, called.arguments_text, response.content))
        messages.append(result(called.id))
        plain.append(result(called.id))
        messages.append({"role": "assistant", "content": ask(tool_choice="none").content})
    return rows, dialogs


def resend(model: Any, dialogs: list[list[dict[str, str]]]) -> list[tuple[int, int, float]]:
    """Send the same conversation with the prompts of lagent 0.5; what the numbers are: see :func:`converse`."""
    command = [python_with(UPSTREAM), "-c", PROGRAM]
    done = subprocess.run(command, input=json.dumps(dialogs), capture_output=True, text=True, check=True)
    rows = []
    for prompt, seconds in json.loads(done.stdout[done.stdout.index("[[") :]):
        start = time.perf_counter()
        model._tokenizer.encode(prompt, add_special_tokens=False)
        seconds += time.perf_counter() - start
        usage = model.generate(prompt, max_new_tokens=48).usage
        rows.append((usage.prompt_tokens, usage.cached_tokens, seconds))
    return rows


def question(city: str) -> dict[str, Any]:
    return {"role": "user", "content": f"What is the weather in {city}? Look it up."}


def call(city: str, id_: str, arguments: str | None = None, content: str = "") -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments or json.dumps({"city": city})}
    return {"role": "assistant", "content": content, "tool_calls": [{"id": id_, "type": "function", "function": function}]}


def result(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": "sunny"}


def as_text(message: dict[str, Any]) -> str:
    """A message as the model wrote or would write it."""
    calls = [each["function"] for each in message.get("tool_calls", ())]
    texts = [f'<tool_call>\n{{"name": "{each["name"]}", "arguments": {each["arguments"]}}}\n</tool_call>' for each in calls]
    return "\n".join(filter(None, [message["content"], *texts]))


if __name__ == "__main__":
    sys.exit(main())
