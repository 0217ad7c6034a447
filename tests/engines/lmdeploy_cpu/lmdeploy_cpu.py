"""Runs LMDeploy 0.18's own PyTorch engine without a GPU; for tests only.

LMDeploy accepts the device "cuda" and a few others. Here "cuda" means the CPU: PyTorch's functions that take a device are wrapped, the
parts of ``torch.cuda`` that the engine calls are replaced by stand-ins, and the engine gets LMDeploy's own default operators plus the two
that those lack, paged attention and sampling with seeds. Scheduler, paged cache, prefix cache, sampler, guided decoding, engine loop and
servers are LMDeploy's, unchanged. What depends on kernels, on turbomind or on several devices is not covered.

Import it first, or put this folder on PYTHONPATH (see sitecustomize.py). One process, one thread of PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import types
from typing import Any

os.environ.setdefault("LMDEPLOY_SKIP_WARMUP", "1")
os.environ.setdefault("LMDEPLOY_ENABLE_CHECK_ENV", "0")

MEMORY = int(os.environ.get("LMDEPLOY_CPU_BYTES", 512 * 2**20))
"""The memory that the stand-in for a GPU says it has; the cache takes its share of it."""


def install() -> None:
    """Make LMDeploy run on the CPU in this process; nothing happens the second time."""
    import torch
    import torch._dynamo  # before torch.cuda is replaced: it looks at its functions on import

    if getattr(torch.cuda, "is_stand_in", False):
        return
    _map_devices(torch)
    _replace_cuda(torch)
    from lmdeploy.pytorch.backends import selector

    backend = _backend(torch)
    selector._get_backend = lambda: backend


# PyTorch ---------------------------------------------------------------------------------------------------------

_FACTORIES = (
    "tensor as_tensor empty zeros ones full arange rand randn randint linspace empty_like zeros_like ones_like full_like rand_like "
    "randn_like eye empty_strided randperm scalar_tensor"
)


def _is_cuda(device: Any) -> bool:
    return str(device).startswith("cuda")


def _on_cpu(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        return function(*args, **kwargs)

    return call


def _map_devices(torch: Any) -> None:
    for name in _FACTORIES.split():
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    tensor = torch.Tensor
    for name in ("new_tensor", "new_empty", "new_zeros", "new_ones", "new_full"):
        setattr(tensor, name, _on_cpu(getattr(tensor, name)))
    move = _on_cpu(tensor.to)
    tensor.to = lambda self, *args, **kwargs: move(
        self, *("cpu" if isinstance(arg, (str, torch.device)) and _is_cuda(arg) else arg for arg in args), **kwargs
    )
    tensor.cuda = tensor.pin_memory = lambda self, *args, **kwargs: self
    tensor.record_stream = lambda self, stream: None
    torch.compile = lambda model=None, **kwargs: model if model is not None else (lambda function: function)


class _Event:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.time = time.time()

    def record(self, *args: Any) -> None:
        self.time = time.time()

    def query(self) -> bool:
        return True

    def wait(self, *args: Any) -> None:
        pass

    synchronize = wait

    def elapsed_time(self, other: _Event) -> float:
        return (other.time - self.time) * 1e3


class _Stream:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self, *args: Any) -> None:
        pass

    wait_event = wait_stream = synchronize

    def record_event(self, event: _Event | None = None) -> _Event:
        return event or _Event()


def _replace_cuda(torch: Any) -> None:
    cuda, stream = torch.cuda, _Stream()
    cuda.is_stand_in = True
    cuda.Stream, cuda.Event = _Stream, _Event
    cuda.current_stream = cuda.default_stream = lambda *args, **kwargs: stream
    cuda.stream = lambda stream: contextlib.nullcontext()
    cuda.synchronize = cuda.empty_cache = cuda.set_device = lambda *args, **kwargs: None
    cuda.current_device = lambda: 0
    cuda.device_count = lambda: 1
    cuda.get_device_name = lambda *args: "CPU"
    cuda.get_device_capability = lambda *args: (8, 0)
    properties = types.SimpleNamespace(
        major=8, minor=0, name="CPU", multi_processor_count=1, uuid="cpu", total_memory=MEMORY, warp_size=32
    )
    cuda.get_device_properties = lambda *args: properties
    cuda.mem_get_info = lambda *args: (MEMORY, MEMORY)
    torch._C._cuda_clearCublasWorkspaces = lambda *args: None


# LMDeploy --------------------------------------------------------------------------------------------------------


def _backend(torch: Any) -> Any:
    from lmdeploy.pytorch.backends.attention import AttentionImpl, AttentionMetadata, PagedAttentionBuildSpec
    from lmdeploy.pytorch.backends.default import DefaultOpsBackend
    from lmdeploy.pytorch.backends.multinomial_sampling import MultinomialSamplingBuildSpec, MultinomialSamplingImpl

    class PagedAttention(AttentionImpl):
        """Attention over a paged cache, one sequence after the other."""

        def forward(
            self,
            query: Any,
            key: Any,
            value: Any,
            k_cache: Any,
            v_cache: Any,
            attn_metadata: Any,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            size = k_cache.size(1)
            queries = query.reshape(-1, self.num_heads, self.head_size)
            output = queries.new_empty(len(queries), self.num_heads, self.v_head_size)
            sequences = zip(
                attn_metadata.q_start_loc.tolist(),
                attn_metadata.q_seqlens.tolist(),
                attn_metadata.kv_seqlens.tolist(),
                attn_metadata.block_offsets.long(),
                strict=True,
            )
            for start, count, length, blocks in sequences:
                if not count:
                    continue
                new, positions = slice(start, start + count), torch.arange(length - count, length)
                if key is not None:
                    place = blocks[positions // size], positions % size
                    k_cache[place] = key.reshape(-1, self.num_kv_heads, self.head_size)[new].to(k_cache.dtype)
                    v_cache[place] = value.reshape(-1, self.num_kv_heads, self.v_head_size)[new].to(v_cache.dtype)
                pages = blocks[: -(-length // size)]
                keys = k_cache[pages].reshape(-1, self.num_kv_heads, self.head_size)[:length]
                values = v_cache[pages].reshape(-1, self.num_kv_heads, self.v_head_size)[:length]
                attended = torch.nn.functional.scaled_dot_product_attention(
                    *(each.transpose(0, 1)[None].float() for each in (queries[new], keys, values)),
                    attn_mask=positions[:, None] >= torch.arange(length)[None],
                    scale=self.scale,
                    enable_gqa=True,
                )
                output[new] = attended[0].transpose(0, 1).to(output.dtype)
            return output.view(*query.shape[:-1], self.v_head_size)

    class SeededSampling(MultinomialSamplingImpl):
        """Sampling that follows the seed of each request, which LMDeploy's default operator ignores."""

        def forward(self, scores: Any, seeds: Any, offsets: Any, indices: Any = None) -> Any:
            chosen = []
            for row, seed, offset in zip(scores, seeds.tolist(), offsets.tolist(), strict=True):
                generator = torch.Generator().manual_seed((seed * 1_000_003 + offset) % 2**63)
                chosen.append(torch.multinomial(row.float(), 1, generator=generator))
            return torch.gather(indices, 1, torch.stack(chosen)).view(-1)

    class Backend(DefaultOpsBackend):
        @staticmethod
        def get_name() -> str:
            return "cpu"

        @classmethod
        def build_op(cls, spec: Any, *, enable_deterministic: bool = False) -> Any:
            if isinstance(spec, PagedAttentionBuildSpec):
                return PagedAttention(
                    num_heads=spec.num_heads,
                    head_size=spec.head_dim,
                    scale=spec.scale,
                    num_kv_heads=spec.num_kv_heads,
                    v_head_size=spec.v_head_dim,
                )
            if isinstance(spec, MultinomialSamplingBuildSpec):
                return SeededSampling()
            return super().build_op(spec, enable_deterministic=enable_deterministic)

        @staticmethod
        def get_attention_metadata_cls() -> Any:
            return AttentionMetadata

        @classmethod
        def update_step_context(cls, context: Any) -> Any:
            names = ("is_decoding", "block_offsets", "q_start_loc", "q_seqlens", "kv_seqlens", "quant_policy")
            fields = {"quant_policy": "kv_quant_policy"}
            context.attn_metadata = AttentionMetadata(**{name: getattr(context, fields.get(name, name)) for name in names})
            return context

        @staticmethod
        def device_count() -> int:
            return 1

        @staticmethod
        def ccl_backend() -> str:
            return "gloo"

    return Backend
