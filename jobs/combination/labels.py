"""Labels of combinations by a teacher that is slow to ask: chosen, computed once, kept on disk as they are made."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from corag_ray.types import Combination
from jobs.combination.checkpoint import Example
from jobs.combination.examples import Asked, grade
from jobs.combination.lessons import few


class Teacher(Protocol):
    """Says how good combinations are."""

    def of(self, asked: Asked, combinations: Sequence[Combination]) -> list[float]:
        """One label a combination, in order; higher is better."""
        ...


@dataclass(frozen=True, slots=True)
class Labelled:
    """A question's combinations, the ideal one first, their labels, and the CPU seconds that these took."""

    combinations: tuple[Combination, ...]
    log_likelihoods: tuple[float, ...]
    cpu_seconds: float


def answered(sets: Sequence[Sequence[Example]], limit: int, seed: int) -> list[Example]:
    """At most `limit` questions that have an answer, in turn from each set: a smaller limit gives the first of them."""
    of_sets = [[example for example in examples if example.asked.answers] for examples in sets]
    drawn = [random.Random(f"{seed} {n}").sample(examples, len(examples)) for n, examples in enumerate(of_sets)]
    in_turn = (example for turn in itertools.zip_longest(*drawn) for example in turn if example is not None)
    return list(itertools.islice(in_turn, limit))


def labelled(
    examples: Sequence[Example],
    teacher: Callable[[], Teacher],
    identity: str,
    cache: Path,
    count: int,
    seed: int,
    watch: Callable[[int], None],
) -> list[Labelled]:
    """Labels of `count` combinations a question, those of the first pass; what `cache` lacks is asked, and added to it.

    `teacher` is loaded only where something is to be asked; `identity` tells its labels from another's. `watch` is told
    how many questions are done.
    """
    known, asked_one, found = read_labels(cache), None, []
    for number, example in enumerate(examples):
        combinations = few(example.asked, seed, 0, count)
        key = _key(identity, example.asked, combinations)
        if key not in known:
            asked_one = asked_one or teacher()
            begun = time.process_time()
            values = asked_one.of(example.asked, combinations)
            known[key] = Labelled(tuple(combinations), tuple(values), time.process_time() - begun)
            _add(cache, key, known[key])
        found.append(known[key])
        watch(number + 1)
    return found


def read_labels(cache: Path) -> dict[str, Labelled]:
    """By key; a line that a killed run left half written is passed over."""
    known: dict[str, Labelled] = {}
    for line in cache.read_text("utf-8").splitlines() if cache.exists() else []:
        try:
            told = json.loads(line)
            combinations = tuple(map(tuple, told["combinations"]))
            known[told["key"]] = Labelled(combinations, tuple(told["log_likelihoods"]), told["cpu_seconds"])
        except (ValueError, LookupError, TypeError):
            continue
    return known


def agreement(asked: Sequence[Asked], labels: Sequence[Labelled], threshold: float) -> dict[str, float | int | None]:
    """How many pairs of one question's combinations the labels order, and how often as evidence does.

    `agreeing` is the share among those pairs that differ in their grade as well; None where there are none.
    """
    ordered, judged, agreeing = 0, 0, 0
    for one, of_question in zip(asked, labels, strict=True):
        graded = [grade(one, combination) for combination in of_question.combinations]
        for (label, of_one), (other, of_other) in itertools.combinations(
            zip(of_question.log_likelihoods, graded, strict=True), 2
        ):
            if abs(label - other) > threshold:
                ordered += 1
                judged += of_one != of_other
                agreeing += (label - other) * (of_one - of_other) > 0
    return {"pairs_ordered": ordered, "agreeing": round(agreeing / judged, 4) if judged else None}


def _add(cache: Path, key: str, labels: Labelled) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    told = {
        "key": key,
        "combinations": labels.combinations,
        "log_likelihoods": labels.log_likelihoods,
        "cpu_seconds": round(labels.cpu_seconds, 3),
    }
    with cache.open("a", encoding="utf-8") as file:
        file.write(f"\n{json.dumps(told)}\n")  # a line end before it, since the last line may be half a one


def _key(identity: str, asked: Asked, combinations: Sequence[Combination]) -> str:
    """What the labels depend on: the teacher, question, answer, and texts in their order."""
    texts = [[asked.chunks[number].text for number in chosen] for chosen in combinations]
    told = [identity, asked.text, asked.answers[0], texts, combinations]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
