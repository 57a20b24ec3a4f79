"""How torch computes here: number type by hardware, threads by plan, and no hub."""

from __future__ import annotations

import os
from dataclasses import dataclass

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime's wheels report to their maker, unless this is set before its import
}
"""Environment of the `local` profile; handed to every actor as well."""
SLEEPING_THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Idle threads sleep: torch and FAISS each keep a pool, and spinning ones keep the others' from working.

Read when either library is first loaded, so it is handed to processes that are yet to start. Measured: searches that
alternate with the embedder take 495 ms without and 26 ms with it, actors that share cores 2 to 5 times as long.
"""


def go_offline() -> None:
    """No hub for this process, and no progress bars of transformers' own between ours."""
    os.environ.update(OFFLINE)  # before the first import of transformers and of ONNX Runtime, which read it once
    from transformers.utils import logging

    logging.disable_progress_bar()


@dataclass(frozen=True, slots=True)
class Compute:
    """How a model computes.

    `threads` is the number of CPU threads of this process. `deterministic` means float32, one thread and, in embedders
    and cross-encoders, one text a forward pass, so that a number depends neither on company nor on the plan.
    """

    threads: int
    deterministic: bool = False
    dtype: str = "float32"

    def apply(self) -> None:
        """Set the threads of torch and FAISS for this process and keep the hub libraries offline."""
        os.environ.update(SLEEPING_THREADS)  # for whichever of the two is not loaded yet
        import faiss
        import torch

        go_offline()
        threads = 1 if self.deterministic else self.threads
        torch.set_num_threads(threads)
        faiss.omp_set_num_threads(threads)


def native_dtype() -> str:
    """`bfloat16` where this processor multiplies it, else `float32` (emulated, bfloat16 is 40 times slower)."""
    import torch

    return "bfloat16" if torch.cpu._is_avx512_bf16_supported() else "float32"
