"""A server of LMDeploy that this script starts and owns: many sessions at once, and a stream through a client of the same server.

python run_async_agent_lmdeploy_server.py [MODEL]
"""

import asyncio
import sys
import time

from lagent.agents import AsyncAgent, AsyncToolAgent
from lagent.llms import AsyncLMDeployClient, AsyncLMDeployServer

PATH = sys.argv[1] if len(sys.argv) > 1 else "internlm/internlm2_5-7b-chat"
SAMPLING = {"top_k": 1, "temperature": 1.0, "stop_words": ["<|im_end|>", "<|action_end|>"], "max_new_tokens": 64}
COUNTRIES = ["France", "Italy", "Spain", "Germany", "Japan", "Norway", "Egypt", "Peru"]


async def main() -> None:
    model = AsyncLMDeployServer(path=PATH, model_name="my-model", tp=1, load="now", **SAMPLING)
    client = AsyncLMDeployClient(url=model.url, key=model.key, model_name="my-model", **SAMPLING)
    try:
        print("-" * 30, "sessions", "-" * 30)
        agent = AsyncAgent(model, "Answer in one sentence.")
        began = time.monotonic()
        questions = [f"What is the capital of {country}?" for country in COUNTRIES]
        for answer in await asyncio.gather(*(agent(question, session_id=i) for i, question in enumerate(questions))):
            print(answer.content)
        print(f"{len(questions)} answers in {time.monotonic() - began:.1f} s")

        print("-" * 30, "streaming chat", "-" * 30)
        async for chunk in client.stream_chat([{"role": "user", "content": "Tell me about Paris."}]):
            print(chunk.content, end="", flush=True)
        print()

        print("-" * 30, "tools", "-" * 30)
        calculator = AsyncToolAgent(client, actions=["calculator"])
        print((await calculator("What is 12 * 34 + 5? Use the calculator.")).content)
    finally:
        await client.close()
        await model.close()


if __name__ == "__main__":
    asyncio.run(main())
