"""How long a run will take: its multiplications, over what this machine multiplies in a second."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from corag_ray.config import Config, Method
from corag_ray.core.beam import BeamParams
from corag_ray.core.exhaustive import ExhaustiveParams, num_combinations
from corag_ray.core.guided_tree import GuidedParams
from corag_ray.core.policy_tree import SearchParams
from corag_ray.names import asked_cross_encoders

START_SECONDS = 25.0
"""Ray, its workers and the models' loading."""
EMBEDDER_FLOP_A_TOKEN = 2 * 10.7e6
"""all-MiniLM-L6-v2: two a weight outside the vocabulary."""
GENERATOR_FLOP_A_TOKEN = 2 * 134.5e6
TEMPLATE_TOKENS = 70
QUESTION_TOKENS = 40
"""Of query likelihood, which reads the question anew after every combination."""
EFFICIENCY = 0.9
"""Of the matrix rate: attention and decoding lose more than this, and prompts that share a beginning win some back."""
READING_EFFICIENCY = 0.8
"""Of the matrix rate, when nothing is decoded and nothing is shared."""
SELECT_SECONDS = 0.15
"""A question's retrieval, preparation and search."""


def estimate_seconds(config: Config, questions: int, chunks_to_embed: int) -> float:
    """Seconds for what is still to be done, but for what `not_estimated` names.

    Right to a factor of two on a quiet machine; with query likelihood an upper bound, for its searches can end early.
    """
    flop = chunks_to_embed * config.chunking.size_tokens * EMBEDDER_FLOP_A_TOKEN
    asked = [method for method in config.methods.values() if method.reranker == "query_likelihood" and method.strategy]
    tokens_a_pair = config.chunking.size_tokens + QUESTION_TOKENS  # the chunks before are shared with another pair
    flop += questions * sum(most_pairs(config, m) for m in asked) * tokens_a_pair * GENERATOR_FLOP_A_TOKEN
    if config.generation.enabled and config.generation.server is None:
        context = {"retrieval": config.budget_tokens * 0.8, "gold": config.budget_tokens * 0.3, "none": 0.0}
        tokens = sum(
            context[m.source] + TEMPLATE_TOKENS + config.generation.max_new_tokens for m in config.methods.values()
        )
        flop += questions * tokens * GENERATOR_FLOP_A_TOKEN
    return START_SECONDS + questions * SELECT_SECONDS + flop / (_matrix_rate(config.plan.threads) * EFFICIENCY)


def not_estimated(config: Config) -> list[str]:
    """What a run of this configuration takes time for, and no machine of ours can tell how much."""
    own = ["the cross-encoders"] if asked_cross_encoders(config) else []
    asked = ["the server's answers"] if config.generation.enabled and config.generation.server else []
    return own + asked


def most_pairs(config: Config, method: Method) -> int:
    """Pairs that a method can have scored for a question, at most, where chunks are of their full size."""
    candidates = config.retrieval.num_candidates
    match method.strategy and method.strategy.params:
        case None:
            return 0
        case SearchParams(iterations=iterations):
            return iterations * candidates
        case GuidedParams(pairs=pairs):
            return pairs
        case ExhaustiveParams(num_candidates=first, max_chunks=max_chunks):
            return num_combinations(min(candidates, first), max_chunks, ordered=True)
        case BeamParams(width=width):
            rounds = math.ceil(config.budget_tokens / config.chunking.size_tokens)
            return (1 + (rounds - 1) * width) * candidates
        case _:
            return candidates


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
