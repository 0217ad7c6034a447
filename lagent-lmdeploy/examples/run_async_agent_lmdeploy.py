"""Many problems at once, with asynchronous agents on a model that LMDeploy runs in this process.

python run_async_agent_lmdeploy.py [MODEL] [--max-new-tokens N]
"""

import argparse
import asyncio
import json
import time

from lagent.agents.stream import PLUGIN_CN, AsyncAgentForInternLM, AsyncMathCoder, get_plugin_prompt
from lagent.llms import INTERNLM2_META, AsyncLMDeployPipeline
from lagent.prompts.parsers import PluginParser

PROBLEMS = [
    "What is the sum of the first 100 positive integers?",
    "How many primes are there below 1000?",
    "What is the remainder when 7^2024 is divided by 13?",
    "In how many ways can the letters of LAGENT be arranged?",
]


async def main(path: str, max_new_tokens: int) -> None:
    model = AsyncLMDeployPipeline(
        path,
        meta_template=INTERNLM2_META,
        tp=1,
        top_k=1,
        temperature=1.0,
        stop_words=["<|im_end|>", "<|action_end|>"],
        max_new_tokens=max_new_tokens,
    )

    print("-" * 40, "interpreter", "-" * 40)
    coder = AsyncMathCoder(model, interpreter={"type": "async_ipython", "max_kernels": 300}, max_turn=11)
    start = time.time()
    await asyncio.gather(*(coder(problem, session_id=number) for number, problem in enumerate(PROBLEMS)))
    print(f"time elapsed: {time.time() - start:.1f} s")
    print(json.dumps([coder.get_steps(number) for number in range(len(PROBLEMS))], ensure_ascii=False, indent=4))

    print("-" * 40, "plugin", "-" * 40)
    plugins = [{"type": "async_arxiv"}]
    agent = AsyncAgentForInternLM(
        model, plugins=plugins, output_format=PluginParser(template=PLUGIN_CN, prompt=get_plugin_prompt(plugins))
    )
    start = time.time()
    answers = await asyncio.gather(*(agent("LLM智能体方向的最新论文有哪些？", session_id=number) for number in range(4)))
    print(answers[0].model_dump_json())
    print(f"time elapsed: {time.time() - start:.1f} s")
    await model.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="internlm/internlm2_5-7b-chat")
    parser.add_argument("--max-new-tokens", type=int, default=1024)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.model, arguments.max_new_tokens))
