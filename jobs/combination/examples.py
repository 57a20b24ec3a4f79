"""A question with its candidates, and graded combinations of them: what the combination reranker is trained on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from corag_ray.types import Chunk, Combination
from jobs.combination.parts import Part

Kind = Literal["single", "several", "joined"]
"""Whether a question's evidence is one passage, several, or that of two questions."""
MAX_CHUNKS = 6
TEMPTING, SINGLES = 10, 3
"""Of the highest candidates without evidence so many stand alone among a question's combinations."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of one part with its candidates.

    Attributes:
        text: the question.
        part: which part of the documents its evidence and candidates are of.
        kind: how many passages answer it.
        chunks: [k] candidates by rank, k at most `drawing.CANDIDATES`.
        rows: [k] their rows in the chunk store.
        holds: [k] for each the numbers of the evidence that it covers, 0..evidence-1.
        evidence: how many pieces of evidence the question has, found or not.
        answers: reference answers; none of joined questions.
    """

    text: str
    part: Part
    kind: Kind
    chunks: tuple[Chunk, ...]
    rows: tuple[int, ...]
    holds: tuple[frozenset[int], ...]
    evidence: int
    answers: tuple[str, ...] = ()

    def right(self) -> list[int]:
        """Candidates that hold evidence, by rank."""
        return [number for number, held in enumerate(self.holds) if held]

    def wrong(self) -> list[int]:
        """Candidates that hold none, by rank: the first is the highest-ranked distractor."""
        return [number for number, held in enumerate(self.holds) if not held]

    def ideal(self) -> Combination:
        """The fewest candidates that a greedy choice finds for all evidence among them, in document order.

        Documents stand in the order of their ranks; `()` where no candidate holds evidence.
        """
        chosen: list[int] = []
        missing = frozenset().union(*self.holds)
        while missing:
            chosen.append(max(self.right(), key=lambda number: len(self.holds[number] & missing)))
            missing -= self.holds[chosen[-1]]
        ranks: dict[str, int] = {}
        for number in sorted(chosen):
            ranks.setdefault(self.chunks[number].doc_id, number)
        return tuple(sorted(chosen, key=lambda n: (ranks[self.chunks[n].doc_id], self.chunks[n].position)))


class Merit(NamedTuple):
    """What a combination is worth, the weightiest first.

    Attributes:
        covered: share of the question's evidence that it holds.
        irrelevant: chunks without evidence.
        repeated: chunks whose evidence others before them hold, and copies of others.
        turned: pairs of chunks of one document that stand against its order.
    """

    covered: float
    irrelevant: int
    repeated: int
    turned: int


def merit(asked: Asked, combination: Combination) -> Merit:
    """Counted over the chunks in their order; a number that stands twice is a copy."""
    seen: set[int] = set()
    irrelevant = repeated = 0
    for place, number in enumerate(combination):
        copied = number in combination[:place]
        irrelevant += not asked.holds[number] and not copied
        repeated += copied or (bool(asked.holds[number]) and asked.holds[number] <= seen)
        seen |= asked.holds[number]
    pairs = itertools.combinations([asked.chunks[number] for number in combination], 2)
    turned = sum(one.doc_id == other.doc_id and one.position > other.position for one, other in pairs)
    return Merit(len(seen) / asked.evidence, irrelevant, repeated, turned)


def grade(asked: Asked, combination: Combination) -> float:
    """The target of a combination of at most `MAX_CHUNKS` chunks, in -0.6..1: higher is better.

    It is the covered share of the evidence, less a twelfth of one piece's share for every chunk that brings no new
    evidence (irrelevant, or a duplicate), less a sixteenth of that for every two chunks of one document that stand
    against its order. So more evidence outweighs any number of chunks in vain, and a chunk in vain any order.
    """
    worth = merit(asked, combination)
    vain = worth.irrelevant + worth.repeated + worth.turned / 16
    return worth.covered - vain / (2 * MAX_CHUNKS * asked.evidence)


def combinations_of(asked: Asked, chance: random.Random) -> list[Combination]:
    """Ordered combinations of every grade, from all evidence to none, each of at most `MAX_CHUNKS` chunks.

    The question must have evidence among its candidates. A number that stands twice is a duplicate chunk.
    """
    right, wrong, best = asked.right(), asked.wrong(), asked.ideal()[:MAX_CHUNKS]
    made: list[Combination] = [(), best, best[::-1]]
    parts: list[Combination] = [(number,) for number in chance.sample(right, min(2, len(right)))]
    if len(best) > 2:
        parts.append(tuple(sorted(chance.sample(best, len(best) - 1), key=best.index)))
    made += parts
    if wrong:
        made += [_shuffled((*part, _distractor(wrong, chance)), chance) for part in parts]
        made += [(number,) for number in chance.sample(wrong[:TEMPTING], min(SINGLES, len(wrong[:TEMPTING])))]
        made += [(_distractor(wrong, chance),), tuple(chance.sample(wrong[:5], min(2, len(wrong[:5]))))]
        made.append(tuple(chance.sample(wrong, min(chance.randint(1, MAX_CHUNKS), len(wrong)))))
    made.append(tuple(chance.sample(range(len(asked.chunks)), min(chance.randint(1, MAX_CHUNKS), len(asked.chunks)))))
    for of in (best, best, chance.choice(made)):
        made += in_vain(asked, of, chance)
    made += neighbours(asked, chance)
    return [combination for combination in made if len(combination) <= MAX_CHUNKS]


def in_vain(asked: Asked, combination: Combination, chance: random.Random) -> list[Combination]:
    """The combination with a copy of one of its chunks, and with an irrelevant one, half of them at the end.

    They differ from it in nothing else, so what a head says of them beside it is what it thinks of such a chunk.
    """
    made = [_inserted(combination, chance.choice(combination), chance)] if combination else []
    wrong = [number for number in asked.wrong() if number not in combination]
    return [*made, _inserted(combination, _distractor(wrong, chance), chance)] if wrong else made


def _distractor(wrong: Sequence[int], chance: random.Random) -> int:
    """One of the candidates without evidence: the highest, one of the five highest, or any, one time in three each."""
    return chance.choice(wrong[: chance.choice((1, 5, len(wrong)))])


def neighbours(asked: Asked, chance: random.Random) -> list[Combination]:
    """Two candidates of one document, if possible one with evidence, in its order and reversed; `[]` where none are."""
    pairs = [
        (one, other)
        for one, other in itertools.permutations(range(len(asked.chunks)), 2)
        if asked.chunks[one].doc_id == asked.chunks[other].doc_id
        and asked.chunks[one].position < asked.chunks[other].position
    ]
    telling = [pair for pair in pairs if asked.holds[pair[0]] or asked.holds[pair[1]]] or pairs
    if not telling:
        return []
    pair = chance.choice(telling)
    return [pair, pair[::-1]]


def _inserted(combination: Combination, number: int, chance: random.Random) -> Combination:
    place = len(combination) if chance.random() < 0.5 else chance.randint(0, len(combination))
    return (*combination[:place], number, *combination[place:])


def _shuffled(combination: Combination, chance: random.Random) -> Combination:
    return tuple(chance.sample(combination, len(combination)))
