"""How torch computes here: number type by hardware, threads by plan, and no hub."""

from __future__ import annotations

import os
from dataclasses import dataclass

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Environment of the `local` profile; handed to every actor as well."""


@dataclass(frozen=True, slots=True)
class Compute:
    """How a model computes.

    `threads` is the number of CPU threads of this process. `deterministic` means float32, one thread and, in the
    embedder, one text a forward pass, so that a number depends neither on company nor on the plan.
    """

    threads: int
    deterministic: bool = False

    def apply(self) -> None:
        """Set torch's threads for this process and keep the hub libraries offline."""
        import torch

        os.environ.update(OFFLINE)
        torch.set_num_threads(1 if self.deterministic else self.threads)

    @property
    def dtype_name(self) -> str:
        """`bfloat16` where the hardware multiplies it, else `float32` (emulated, bfloat16 is 40 times slower)."""
        import torch

        if self.deterministic:
            return "float32"
        if torch.cuda.is_available():
            return "bfloat16"
        return "bfloat16" if torch.cpu._is_avx512_bf16_supported() else "float32"
