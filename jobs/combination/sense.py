"""Whether a reranker means what it says of combinations: checks on questions whose evidence is known."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from corag_ray.evaluation.intervals import bootstrap_interval, mean
from corag_ray.models.protocols import Reranker
from corag_ray.types import Combination
from jobs.combination.examples import Asked, Kind, neighbours

Check = Literal["both", "irrelevant", "duplicate", "order"]
SAME = 1e-6
"""Raw scores nearer than this are one: sums of floats in another order."""
QUESTIONS_A_CALL = 32


@dataclass(frozen=True, slots=True)
class Sense:
    """What one reranker made of one question; None where the question does not put the check.

    Attributes:
        kind: of the question.
        both: both supporting chunks score above each of them joined with the highest-ranked distractor (by chance, a
            third); of questions that exactly two chunks answer, one each.
        irrelevant: a random chunk without evidence, put behind the supporting ones, lowers the score.
        duplicate: a copy of the last supporting chunk, put behind them, does not raise it.
        order: two chunks of one document, one of them with evidence, score higher in its order than against it; None
            also where the score is blind to order.
    """

    kind: Kind
    both: bool | None
    irrelevant: bool | None
    duplicate: bool | None
    order: bool | None


def cases(asked: Asked, chance: random.Random) -> dict[str, Combination]:
    """The combinations that the checks compare, by name; a copy of the last supporting chunk is candidate k."""
    best, wrong, number_of_copy = asked.ideal(), asked.wrong(), len(asked.chunks)
    made: dict[str, Combination] = {"best": best, "duplicate": (*best, number_of_copy)}
    if wrong:
        made["irrelevant"] = (*best, chance.choice(wrong[1:] or wrong))
        if len(best) == asked.evidence == 2:
            # In order of rank, all three alike: what stands first decides nothing that it would not decide anyway.
            made |= {"both": tuple(sorted(best))}
            made |= {f"part {n}": tuple(sorted((number, wrong[0]))) for n, number in enumerate(best)}
    if pair := neighbours(asked, chance):
        made["ordered"], made["reversed"] = pair
    return made


def sense(kind: Kind, raw: Mapping[str, float], order_sensitive: bool) -> Sense:
    """The checks, from the raw scores of `cases`."""
    both = raw["both"] > max(raw["part 0"], raw["part 1"]) + SAME if "both" in raw else None
    irrelevant = raw["irrelevant"] < raw["best"] - SAME if "irrelevant" in raw else None
    order = raw["ordered"] > raw["reversed"] + SAME if order_sensitive and "ordered" in raw else None
    return Sense(kind, both, irrelevant, raw["duplicate"] <= raw["best"] + SAME, order)


def judge(
    asked: Sequence[Asked], reranker: Reranker[Any], seed: int = 0, prepare: Callable[[int], Any] | None = None
) -> tuple[list[Sense], float]:
    """Every question's checks, and the pairs that the reranker scored in a second, preparation left out.

    `prepare` gives what the reranker would prepare of a question by its number, with a copy of its ideal's last chunk
    behind the candidates, where that is known already.
    """
    made: list[Sense] = []
    pairs, seconds = 0, 0.0
    for start in range(0, len(asked), QUESTIONS_A_CALL):
        block = asked[start : start + QUESTIONS_A_CALL]
        wanted: list[tuple[Any, Combination]] = []
        named = [cases(one, random.Random(f"{seed} {one.text}")) for one in block]
        for number, (one, combinations) in enumerate(zip(block, named, strict=True), start=start):
            copied = one.ideal()[-1]
            prepared = (
                reranker.prepare(one.text, [*one.chunks, one.chunks[copied]], [*one.rows, one.rows[copied]])
                if prepare is None
                else prepare(number)
            )
            wanted += [(prepared, combination) for combination in combinations.values()]
        started = time.perf_counter()
        found = iter(reranker.score(wanted))
        seconds += time.perf_counter() - started
        pairs += len(wanted)
        for one, combinations in zip(block, named, strict=True):
            raw = {name: next(found).raw for name in combinations}
            made.append(sense(one.kind, raw, reranker.order_sensitive))
    return made, pairs / max(seconds, 1e-9)


def figures(senses: Sequence[Sense]) -> dict[str, dict[str, float | int | None]]:
    """By check the share, the ends of its 95 % interval and the number of questions.

    `both` is told apart for questions that need two documents (`several`) and for two questions joined into one.
    """
    columns: dict[str, list[bool | None]] = {
        "both_several": [one.both for one in senses if one.kind == "several"],
        "both_joined": [one.both for one in senses if one.kind == "joined"],
    }
    checks: tuple[Check, ...] = ("irrelevant", "duplicate", "order")
    columns |= {check: [getattr(one, check) for one in senses] for check in checks}
    return {name: _share(values) for name, values in columns.items()}


def mean_share(shares: Mapping[str, Mapping[str, float | int | None]]) -> float:
    """What picks a training's best weights: the mean share over the checks, order apart, that the questions put."""
    measured = [one["share"] for name, one in shares.items() if name != "order"]
    kept = [share for share in measured if share is not None]
    return sum(kept) / max(1, len(kept))


def _share(values: Sequence[bool | None]) -> dict[str, float | int | None]:
    measured = [None if value is None else float(value) for value in values]
    share, interval = mean(measured), bootstrap_interval(measured, seed=0)
    return {
        "share": None if share is None else round(share, 4),
        "low": None if interval is None else round(interval.low, 4),
        "high": None if interval is None else round(interval.high, 4),
        "questions": sum(value is not None for value in measured),
    }
