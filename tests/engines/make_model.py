"""Makes a model folder in Hugging Face's format of a GGUF file: python make_model.py MODEL.gguf FOLDER"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

source, target = map(Path, sys.argv[1:])
tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
tokenizer.chat_template = Path(__file__).with_name("hermes.jinja").read_text()
tokenizer.save_pretrained(target)
model = AutoModelForCausalLM.from_pretrained(
    source.parent, gguf_file=source.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
)
model.save_pretrained(target)
