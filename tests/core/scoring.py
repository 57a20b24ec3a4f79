"""Scores for tests: random but fixed for a combination, with or without an eye for order."""

import random

from corag_ray.core.drive import drive_lockstep
from corag_ray.core.strategy import Candidates


def random_candidates(rng, count, *, order_matters=True, most_cost=9):
    vectors = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(count)]
    norms = [sum(x * x for x in vector) ** 0.5 for vector in vectors]
    cosines = tuple(
        tuple(sum(x * y for x, y in zip(a, b, strict=True)) / (m * n) for b, n in zip(vectors, norms, strict=True))
        for a, m in zip(vectors, norms, strict=True)
    )
    return Candidates(
        costs=tuple(rng.randint(1, most_cost) for _ in range(count)),
        priors=tuple(sorted((rng.random() for _ in range(count)), reverse=True)),
        documents=tuple(rng.randint(0, 2) for _ in range(count)),
        positions=tuple(rng.randint(0, 5) for _ in range(count)),
        similarity=cosines,
        order_matters=order_matters,
    )


def score_of(seed, combination, *, order_matters=True, missing=0.0):
    """A value of -1..1 in steps of .1 (so that ties happen), or None for a share `missing` of the combinations."""
    key = combination if order_matters else tuple(sorted(combination))
    rng = random.Random(f"{seed} {key}")
    return None if rng.random() < missing else round(rng.uniform(-1, 1), 1)


def run(search, score, ask_limit=512):
    """Drive one search alone; returns all combinations asked for, in order."""
    asked = []

    def score_round(pairs):
        asked.extend(combination for _, combination in pairs)
        return [score(combination) for _, combination in pairs]

    drive_lockstep([search], score_round, in_flight=1, ask_limit=ask_limit)
    return asked
