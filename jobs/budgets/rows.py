"""The rows of a data set: those that the log holds, and the others, which are computed and added to it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import track

from corag_ray.build import build_embedder, build_reranker
from corag_ray.config import Config
from corag_ray.evaluation.evidence import evidence_precision, evidence_recall
from corag_ray.types import Question
from jobs.budgets.contestants import NAIVE, Contestant, Planned, fingerprint_of
from jobs.budgets.row_log import Row
from jobs.budgets.searching import Outcome, naive, query_of, searched
from jobs.combination.drawing import OpenSet
from jobs.row_log import RowLog

Fingerprints = Mapping[tuple[str, int], str]
"""By a method's name and a budget."""


def rows_of(
    opened: OpenSet, questions: Sequence[Question], planned: Planned, limit_slow: int, log: RowLog[Row]
) -> list[Row]:
    """By question and in the plan's order; slow methods are asked the first `limit_slow` questions alone."""
    prints = {(one.name, budget): fingerprint_of(opened.config, opened.dataset, one, budget) for one, budget in planned}
    wanted = [
        (question, one, budget)
        for place, question in enumerate(questions)
        for one, budget in planned
        if place < limit_slow or not one.is_slow
    ]
    missing: dict[Question, Planned] = defaultdict(list)
    for question, one, budget in wanted:
        if log.find(prints[one.name, budget], question.question_id) is None:
            missing[question].append((one, budget))
    if missing:
        _compute(opened, missing, prints, log)
    found = [log.find(prints[one.name, budget], question.question_id) for question, one, budget in wanted]
    return [row for row in found if row is not None]


def _compute(opened: OpenSet, missing: Mapping[Question, Planned], prints: Fingerprints, log: RowLog[Row]) -> None:
    """Add rows to the log: those of a question and reranker at a time, so that a kill loses no more."""
    config, embedder = opened.config, build_embedder(opened.config)
    index = opened.index(embedder)
    names = {one.reranker for planned in missing.values() for one, _ in planned}
    rerankers = {name: build_reranker(config, name, embedder, index) for name in sorted(names - {NAIVE})}
    for question, planned in track(missing.items(), opened.dataset.name, console=Console(file=sys.stderr)):
        query = query_of(question, index, config.retrieval.num_candidates)
        together: dict[str, Planned] = defaultdict(list)
        for one, budget in planned:
            together[one.reranker].append((one, budget))
        for name, pairs in together.items():
            if name == NAIVE:
                outcomes = [naive(query, budget) for _, budget in pairs]
            else:
                outcomes = searched(query, rerankers[name], pairs)
            log.append(
                [
                    row_of(prints[one.name, budget], config, question, one, budget, outcome)
                    for (one, budget), outcome in zip(pairs, outcomes, strict=True)
                ]
            )


def row_of(
    fingerprint: str, config: Config, question: Question, contestant: Contestant, budget: int, outcome: Outcome
) -> Row:
    """The outcome in numbers."""
    chosen = outcome.selection
    return Row(
        fingerprint=fingerprint,
        data=config.dataset,
        question_id=question.question_id,
        method=contestant.name,
        budget_tokens=budget,
        tokens=None if chosen is None else sum(chunk.cost for chunk in chosen),
        recall=None if chosen is None else evidence_recall(question.evidence, chosen),
        precision=None if chosen is None else evidence_precision(question.evidence, chosen),
        pairs=outcome.pairs,
        unscored=outcome.unscored,
    )
