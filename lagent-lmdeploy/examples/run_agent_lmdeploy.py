"""InternLM's agents, for code and for plugins, on a model that LMDeploy runs in this process.

python run_agent_lmdeploy.py [MODEL] [--max-new-tokens N]
"""

import argparse
import time

from lagent.agents import AgentForInternLM, MathCoder
from lagent.llms import INTERNLM2_META, LMDeployPipeline

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", nargs="?", default="internlm/internlm2_5-7b-chat")
parser.add_argument("--max-new-tokens", type=int, default=1024)
arguments = parser.parse_args()

model = LMDeployPipeline(
    arguments.model,
    meta_template=INTERNLM2_META,
    tp=1,
    top_k=1,
    temperature=1.0,
    stop_words=["<|im_end|>", "<|action_end|>"],
    max_new_tokens=arguments.max_new_tokens,
)

print("-" * 40, "interpreter", "-" * 40)
coder = MathCoder(model)
question = (
    "Marie is thinking of a multiple of 63, while Jay is thinking of a factor of 63. They happen to be thinking of the same number. "
    "There are two possibilities for the number that each of them is thinking of, one positive and one negative. Find the product of "
    "these two numbers."
)
print(coder(question, session_id=0).model_dump_json())
print(coder.get_steps(0))
coder.close_session(0)

print("-" * 40, "plugin", "-" * 40)
agent = AgentForInternLM(model, plugins=[{"type": "arxiv"}])
start = time.time()
print(agent("LLM智能体方向的最新论文有哪些？", session_id=0).model_dump_json())
print(agent.get_steps(0))
print(f"time elapsed: {time.time() - start:.1f} s")
model.close()
