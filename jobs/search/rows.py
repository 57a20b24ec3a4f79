"""A row of the log: what one strategy had chosen for a question after so many pairs, and after more."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Point:
    """What was chosen when a search had asked for no more pairs than a limit.

    Attributes:
        limit: of pairs.
        pairs: that it had asked for.
        score: the reranker's raw score of the whole selection, in its order, whether the search asked for it or not;
            None where nothing was chosen, or it cannot be scored.
        tokens: the selection's cost.
        recall: covered share of the evidence, 0..1.
    """

    limit: int
    pairs: int
    score: float | None
    tokens: int
    recall: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy's course over a question at a budget, in numbers; `fingerprint` is of all but the question."""

    fingerprint: str
    data: str
    question_id: str
    reranker: str
    budget_tokens: int
    strategy: str
    points: tuple[Point, ...]
    schema_version: int = SCHEMA_VERSION
