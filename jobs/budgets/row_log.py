"""A row of a comparison's log: what a method selected for a question at a budget."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Row:
    """What a method selected for a question at a budget, in numbers.

    Attributes:
        fingerprint: of all that the numbers depend on but the question.
        data: name of the data set.
        tokens: cost of the selection; None, as are recall and precision, where candidates would have fitted and none of
            them could be scored.
        recall: covered share of the evidence, 0..1.
        precision: share of the selected chunks with evidence, 0..1; None too where nothing is selected.
        pairs: distinct combinations that were asked for, singles included.
        unscored: pairs that could not be scored.
    """

    fingerprint: str
    data: str
    question_id: str
    method: str
    budget_tokens: int
    tokens: int | None
    recall: float | None
    precision: float | None
    pairs: int
    unscored: int
    schema_version: int = SCHEMA_VERSION
