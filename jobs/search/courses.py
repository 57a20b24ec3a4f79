"""The rows of a data set: those that the log holds, and the others, which are computed and added to it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import track

from corag_ray.build import build_embedder, build_reranker
from corag_ray.config import Method
from corag_ray.types import Question
from jobs.budgets.searching import query_of
from jobs.combination.drawing import OpenSet
from jobs.row_log import RowLog
from jobs.search.contestants import fingerprint_of
from jobs.search.course import course_of, remembered, seen_by
from jobs.search.rows import Row


def rows_of(
    opened: OpenSet,
    reranker: str,
    questions: Sequence[Question],
    methods: Mapping[str, Method],
    budgets: Sequence[int],
    limits: Sequence[int],
    log: RowLog[Row],
) -> list[Row]:
    """A row a question, budget and strategy, in this order; a question's rows are logged together."""
    config, dataset = opened.config, opened.dataset
    prints = {(b, name): fingerprint_of(config, dataset, m, b, limits) for b in budgets for name, m in methods.items()}
    missing = [q for q in questions if any(log.find(one, q.question_id) is None for one in prints.values())]
    if missing:
        embedder = build_embedder(config)
        index = opened.index(embedder)
        scorer = build_reranker(config, reranker, embedder, index)
        for question in track(missing, f"{dataset.name}, {reranker}", console=Console(file=sys.stderr)):
            query = query_of(question, index, config.retrieval.num_candidates)
            known, seen = remembered(query, scorer), seen_by(query, scorer, index)
            rows = [
                Row(
                    fingerprint=one,
                    data=config.dataset,
                    question_id=question.question_id,
                    reranker=reranker,
                    budget_tokens=budget,
                    strategy=name,
                    points=tuple(course_of(query, known, methods[name], seen, budget, limits)),
                )
                for (budget, name), one in prints.items()
                if log.find(one, question.question_id) is None
            ]
            log.append(rows)
    found = [log.find(one, question.question_id) for question in questions for one in prints.values()]
    return [row for row in found if row is not None]
