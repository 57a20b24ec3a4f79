"""How long a run will take: its multiplications, over what this machine multiplies in a second."""

from __future__ import annotations

import time
from collections.abc import Sequence

from corag_ray.config import Config

START_SECONDS = 25.0
"""Ray, its workers and the models' loading."""
EMBEDDER_FLOP_A_TOKEN = 2 * 10.7e6
"""all-MiniLM-L6-v2: two a weight outside the vocabulary."""
GENERATOR_FLOP_A_TOKEN = 2 * 134.5e6
TEMPLATE_TOKENS = 70
EFFICIENCY = 0.9
"""Of the matrix rate: attention and decoding lose more than this, and prompts that share a beginning win some back."""
READING_EFFICIENCY = 0.8
"""Of the matrix rate, when nothing is decoded and nothing is shared."""
SELECT_SECONDS = 0.15
"""A question's retrieval, preparation and search."""


def estimate_seconds(config: Config, questions: int, chunks_to_embed: int) -> float:
    """Seconds for what is still to be done; right to a factor of two on a quiet machine."""
    flop = chunks_to_embed * config.chunking.size_tokens * EMBEDDER_FLOP_A_TOKEN
    if config.generation.enabled:
        context = {"retrieval": config.budget_tokens * 0.8, "gold": config.budget_tokens * 0.3, "none": 0.0}
        tokens = sum(
            context[m.source] + TEMPLATE_TOKENS + config.generation.max_new_tokens for m in config.methods.values()
        )
        flop += questions * tokens * GENERATOR_FLOP_A_TOKEN
    return START_SECONDS + questions * SELECT_SECONDS + flop / (_matrix_rate(config.plan.threads) * EFFICIENCY)


def generator_seconds(tokens: int, threads: int) -> float:
    """Seconds that the generator takes to read so many tokens, each by itself."""
    return tokens * GENERATOR_FLOP_A_TOKEN / (_matrix_rate(threads) * READING_EFFICIENCY)


def duration_text(seconds: float) -> str:
    """Seconds as a person says them."""
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def _matrix_rate(threads: int, sizes: Sequence[int] = (1024, 576, 1536)) -> float:
    """Multiply-adds of this machine, in floating-point operations a second, on the generator's shapes."""
    import torch

    torch.set_num_threads(threads)
    rows, inner, columns = sizes
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    left @ right
    started, rounds = time.perf_counter(), 0
    while time.perf_counter() - started < 0.3:
        left @ right
        rounds += 1
    return rounds * 2.0 * rows * inner * columns / (time.perf_counter() - started)
