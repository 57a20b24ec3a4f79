"""The combinations that a question is learned with, by seed and pass: the same ones for whatever learns from them."""

from __future__ import annotations

import random

from corag_ray.types import Combination
from jobs.combination.examples import MAX_CHUNKS, Asked, combinations_of


def drawn(asked: Asked, seed: int, epoch: int) -> list[Combination]:
    """Those of one pass, of every grade, some of them twice."""
    return combinations_of(asked, random.Random(f"{seed} {epoch} {asked.text}"))


def few(asked: Asked, seed: int, epoch: int, count: int) -> list[Combination]:
    """At most `count` different ones of `drawn`, the ideal one first: for what cannot afford them all."""
    best = asked.ideal()[:MAX_CHUNKS]
    others = [combination for combination in dict.fromkeys(drawn(asked, seed, epoch)) if combination != best]
    chance = random.Random(f"{seed} {epoch} {asked.text} few")
    return [best, *chance.sample(others, min(count - 1, len(others)))]
