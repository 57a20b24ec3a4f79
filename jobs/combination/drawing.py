"""Questions and their candidates, drawn from data sets by part.

A question belongs to the part that holds all documents of its evidence, and its candidates are of that part. Two-part
questions are made of two that one passage answers each, their texts joined by a blank.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from corag_ray.batch.index_folder import open_corpus
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.evaluation.evidence import answering_evidence, covers
from corag_ray.indexing.open_index import OpenIndex
from corag_ray.models.protocols import Embedder
from corag_ray.types import Chunk, Question
from jobs.combination.examples import Asked, Kind
from jobs.combination.parts import Part, Parts, part_of, parts_of
from jobs.made_index import made_index

DEPTH = 300
"""Candidates retrieved, of which those of the question's part are kept: a fifth of them in the smaller parts."""
CANDIDATES = 40
QUESTIONS_A_SEARCH = 64


@dataclass(frozen=True, slots=True)
class OpenSet:
    """A data set and its questions that have evidence."""

    config: Config
    dataset: Dataset
    folder: Path
    questions: tuple[Question, ...]

    def index(self, embedder: Embedder) -> OpenIndex:
        """Its index, made where it is missing."""
        return made_index(self.config, self.dataset, self.folder, embedder)


def joined(questions: Sequence[Question], chance: random.Random) -> list[Question]:
    """Two-part questions of single-passage ones: half with a random partner, half with one from the same document.

    A question stands in at most one of either half; two of the same evidence are not joined.
    """
    singles = [question for question in questions if len(question.evidence) == 1]
    chance.shuffle(singles)
    by_document = sorted(singles, key=lambda question: question.evidence[0].span.doc_id)
    return [
        replace(one, text=f"{one.text} {other.text}", evidence=(*one.evidence, *other.evidence), answers=())
        for one, other in [*_pairs(singles), *_pairs(by_document)]
        if one.evidence[0].span != other.evidence[0].span
    ]


def _pairs(questions: Sequence[Question]) -> Iterator[tuple[Question, Question]]:
    """First and second, third and fourth, ...: each question once."""
    return zip(questions[::2], questions[1::2], strict=False)


def open_sets(names: Sequence[str], config: Config, root: Path) -> tuple[dict[str, OpenSet], Parts]:
    """Data sets, their indexes not opened yet, and the parts of all their documents together."""
    sets: dict[str, OpenSet] = {}
    for name in names:
        own = config.model_copy(update={"dataset": name})
        dataset, folder = open_corpus(root, own)
        answerable = (replace(question, evidence=answering_evidence(question)) for question in dataset.questions)
        questions = tuple(question for question in answerable if question.evidence)
        sets[name] = OpenSet(own, dataset, folder, questions)
    doc_ids = [document.doc_id for one in sets.values() for document in one.dataset.documents]
    return sets, parts_of(doc_ids, [question for one in sets.values() for question in one.questions])


def draw(
    questions: Sequence[Question],
    parts: Parts,
    part: Part,
    index: OpenIndex,
    *,
    limit: int,
    limit_joined: int,
    seed: int = 0,
) -> Iterator[Asked]:
    """Questions of one part, from all over a set, and joined ones; those without evidence found are left out."""
    plain = [question for question in questions if part_of(question, parts) == part]
    double = joined(plain, random.Random(seed))
    random.Random(seed).shuffle(double)
    chosen: list[tuple[Question, Kind]] = [
        (question, "single" if len(question.evidence) == 1 else "several") for question in _spread(plain, limit)
    ]
    chosen += [(question, "joined") for question in double[:limit_joined]]
    for start in range(0, len(chosen), QUESTIONS_A_SEARCH):
        block = chosen[start : start + QUESTIONS_A_SEARCH]
        found = index.first_stage.search([question.text for question, _ in block], DEPTH)
        for (question, kind), hits in zip(block, found, strict=True):
            rows = [row for row, _ in hits]
            held = [(row, c) for row, c in zip(rows, index.store.take(rows), strict=True) if parts[c.doc_id] == part]
            asked = asked_of(question, part, kind, held[:CANDIDATES])
            if asked.ideal():
                yield asked


def asked_of(question: Question, part: Part, kind: Kind, candidates: Sequence[tuple[int, Chunk]]) -> Asked:
    """A question with its candidates, each with its row of the chunk store."""
    chunks = tuple(chunk for _, chunk in candidates)
    return Asked(
        text=question.text,
        part=part,
        kind=kind,
        chunks=chunks,
        rows=tuple(row for row, _ in candidates),
        holds=tuple(
            frozenset(number for number, item in enumerate(question.evidence) if covers(chunk, item))
            for chunk in chunks
        ),
        evidence=len(question.evidence),
        answers=question.answers,
    )


def _spread(questions: Sequence[Question], limit: int) -> Sequence[Question]:
    """At most `limit`, evenly spaced: a file may be sorted by document."""
    return questions[:: max(1, -(-len(questions) // limit))] if limit else []
