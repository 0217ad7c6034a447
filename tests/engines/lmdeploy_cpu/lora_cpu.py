"""LoRA for the stand-in of a GPU; beside ``lmdeploy_cpu``, whose operators it completes, and for tests only."""

from __future__ import annotations

from typing import Any


def install() -> None:
    """Give the engine the operator that LMDeploy has for GPUs only; call it after ``lmdeploy_cpu.install()``."""
    from lmdeploy.pytorch.backends import selector
    from lmdeploy.pytorch.backends.lora import LoRABuildSpec, LoRAImpl

    class LoRA(LoRAImpl):
        """Adds ``x · A · B · scaling`` of each sequence's own adapter to its part of the output."""

        def forward(
            self, x: Any, into: Any, out_of: Any, base_output: Any, adapter_info: Any, ctx_mgr: Any, *args: Any, **kwargs: Any
        ) -> Any:
            context = ctx_mgr.current_context()
            inputs, outputs = x.flatten(0, -2), base_output.flatten(0, -2)[:, adapter_info.base_slice]
            sequences = zip(
                context.q_start_loc.tolist(), context.q_seqlens.tolist(), context.local_adapter_ids.tolist(), strict=True
            )
            for start, count, adapter in sequences:
                first, rank = int(adapter_info.rank_offsets[adapter]), int(adapter_info.ranks[adapter])
                if rank:
                    low = inputs[start : start + count] @ into[first : first + rank].T
                    outputs[start : start + count] += low @ out_of[first : first + rank] * adapter_info.scalings[adapter]
            return base_output

    backend = selector._get_backend()
    build = backend.build_op
    backend.build_op = staticmethod(lambda spec, **options: LoRA() if isinstance(spec, LoRABuildSpec) else build(spec, **options))
