"""Answers questions with transformers: python greedy.py MODEL < QUESTIONS

With each answer come, for each of its tokens, those that are as likely but for rounding: the model computes in bfloat16, whose numbers are
0.125 apart where its logits are.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
answers = []
for question in json.load(sys.stdin):
    talk = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        found = model.generate(prompt, do_sample=False, max_new_tokens=16, output_logits=True, return_dict_in_generate=True)
    answers.append(
        {
            "prompt": prompt[0].tolist(),
            "answer": found.sequences[0, prompt.shape[1] :].tolist(),
            "near": [(step[0] >= step[0].max() - 0.25).nonzero()[:, 0].tolist() for step in found.logits],
        }
    )
print(json.dumps(answers))
