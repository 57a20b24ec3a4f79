"""The questions that strategies are compared on: others than those that their parameters were chosen on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corag_ray.config import Config
from corag_ray.errors import DataError
from corag_ray.models.combination_weights import COMBINATION, COMBINATION_HEAD
from corag_ray.types import Question
from jobs.bench_combination import check_split, read_card
from jobs.combination.drawing import OpenSet, open_sets
from jobs.combination.parts import Parts, part_of

Which = Literal["reported", "dev"]
"""`dev`: questions of the documents by which parameters were chosen. `reported`: all others."""


@dataclass(frozen=True, slots=True)
class SetToAsk:
    """A data set with the questions that may be asked of each reranker, in a drawn order."""

    opened: OpenSet
    questions: dict[str, list[Question]]


def sets_to_ask(
    names: Sequence[str], rerankers: Sequence[str], config: Config, root: Path, which: Which, seed: int
) -> Iterator[SetToAsk]:
    """The data sets in order.

    Raises:
        DataError: the head's own data sets are parted otherwise than at its training, or a set has no such question.
    """
    card = read_card(COMBINATION_HEAD)
    of_head, learned = open_sets([entry["name"] for entry in card["data"]], config, root)
    check_split(card, learned)
    for name in names:
        sets, parts = (of_head, learned) if name in of_head else open_sets([name], config, root)
        known = {reranker: learned if reranker == COMBINATION else {} for reranker in rerankers}
        drawn = {r: questions_of(sets[name].questions, parts, known[r], which, seed) for r in rerankers}
        if not all(drawn.values()):
            raise DataError(f"{name}: no question with evidence may be asked of every reranker.")
        yield SetToAsk(sets[name], drawn)


def questions_of(
    questions: Sequence[Question], parts: Parts, learned: Parts, which: Which, seed: int
) -> list[Question]:
    """Those with evidence in a drawn order, whose first few stay the same however many are taken.

    `dev` is the part of that name. `reported` are the test part and, of a reranker that has `learned` from no document
    of a question's evidence in another part than the test's, the train part as well.
    """
    known = {_spelt(doc_id): part for doc_id, part in learned.items()}
    kept = [question for question in questions if _may_be_asked(question, parts, known, which)]
    random.Random(seed).shuffle(kept)
    return kept


def _may_be_asked(question: Question, parts: Parts, known: Parts, which: Which) -> bool:
    part = part_of(question, parts)
    if which == "dev" or part in (None, "dev"):
        return part == which
    return all(known.get(_spelt(item.span.doc_id), "test") == "test" for item in question.evidence)


def _spelt(doc_id: str) -> str:
    """Wikipedia's titles come with underscores and with blanks."""
    return doc_id.replace("_", " ")
