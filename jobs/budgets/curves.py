"""From rows to figures: recall, tokens and precision by method and budget, and how far recall lies above NaiveRAG's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag_ray.evaluation.intervals import bootstrap_interval, mean, paired_bootstrap
from jobs.budgets.contestants import NAIVE
from jobs.budgets.row_log import Row

Floats = NDArray[np.float64]
Asked = tuple[str, str]
"""A question: data set and id."""
Column = Mapping[Asked, Row]
"""What one method did at one budget."""
Estimate = dict[str, float | None]
"""`mean`, and the ends `low` and `high` of its 95 % interval, which are None for fewer than two questions."""

RESAMPLES = 2000
DECIMALS = 4


def columns_of(rows: Sequence[Row]) -> dict[str, dict[int, Column]]:
    """By method and budget; the order of the methods and of the questions is that of the rows."""
    columns: dict[str, dict[int, dict[Asked, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        columns[row.method][row.budget_tokens][row.data, row.question_id] = row
    return {method: dict(sorted(by_budget.items())) for method, by_budget in columns.items()}


def figures(rows: Sequence[Row], seed: int) -> dict[str, dict[str, dict[str, Any]]]:
    """By method and budget the figures that `jobs.bench_budgets` tells of; NaiveRAG's rows must hold every question."""
    columns = columns_of(rows)
    return {
        method: {str(budget): _cell(column, columns[NAIVE], budget, seed) for budget, column in by_budget.items()}
        for method, by_budget in columns.items()
    }


def _cell(column: Column, naive: Mapping[int, Column], budget: int, seed: int) -> dict[str, Any]:
    mine = list(column.values())
    against = [naive[budget][asked] for asked in column]
    recall = [row.recall for row in mine]
    is_naive = column is naive[budget]
    return {
        "questions": len(mine),
        "failed": sum(value is None for value in recall),
        "recall": estimate(recall, seed),
        "tokens": estimate([row.tokens for row in mine], seed),
        "precision": estimate([row.precision for row in mine], seed),
        "pairs": round(float(np.mean([row.pairs for row in mine])), 1),
        "unscored": sum(row.unscored for row in mine),
        "above_naive": None if is_naive else _above(recall, [row.recall for row in against], seed),
        "above_at_equal_tokens": None if is_naive else _at_equal_tokens(column, naive, seed),
    }


def estimate(values: Sequence[float | None], seed: int) -> Estimate:
    """The mean of what was measured, with its interval."""
    interval = bootstrap_interval(values, seed, RESAMPLES)
    ends = (interval.low, interval.high) if interval else (None, None)
    return _rounded(mean(values), *ends)


def _above(values: Sequence[float | None], others: Sequence[float | None], seed: int) -> Estimate:
    found = paired_bootstrap(values, others, seed, RESAMPLES)
    return _rounded(found.mean_difference, found.low, found.high) if found else _rounded(None, None, None)


def _at_equal_tokens(column: Column, naive: Mapping[int, Column], seed: int) -> Estimate:
    measured = [asked for asked, row in column.items() if row.recall is not None]
    if not measured:
        return _rounded(None, None, None)
    curve = [[by_question[asked] for by_question in naive.values()] for asked in measured]
    return above_at_equal_tokens(
        np.array([column[asked].tokens for asked in measured], dtype=np.float64),
        np.array([column[asked].recall for asked in measured], dtype=np.float64),
        np.array([[row.tokens for row in rows] for rows in curve], dtype=np.float64),
        np.array([[row.recall for row in rows] for rows in curve], dtype=np.float64),
        seed,
    )


def above_at_equal_tokens(
    tokens: Floats, recall: Floats, curve_tokens: Floats, curve_recall: Floats, seed: int
) -> Estimate:
    """Mean recall less what NaiveRAG's curve gives at as many mean tokens, with a percentile bootstrap interval.

    The curve joins, by straight lines, no tokens with no recall and the points (mean tokens, mean recall) of NaiveRAG's
    budgets; behind its last point it goes on level. In a resample of the questions all means are taken anew, the
    curve's too.

    Args:
        tokens: [n] of a method's selections, by question.
        recall: [n] of the same.
        curve_tokens: [n, budgets] of NaiveRAG's selections for these questions.
        curve_recall: [n, budgets] of the same.
        seed: of the resampling.
    """
    n = len(tokens)
    columns = np.column_stack([tokens, recall, np.zeros((n, 1)), curve_tokens, np.zeros((n, 1)), curve_recall])
    [difference] = _differences(columns.mean(axis=0, keepdims=True))
    if n < 2:
        return _rounded(difference, None, None)
    draws = np.random.Generator(np.random.PCG64(seed)).integers(n, size=(RESAMPLES, n))
    times_drawn = np.stack([np.bincount(draw, minlength=n) for draw in draws])
    low, high = np.quantile(_differences(times_drawn @ columns / n), [0.025, 0.975])
    return _rounded(difference, float(low), float(high))


def _differences(means: Floats) -> list[float]:
    """One a row of means: tokens, recall, and a curve's tokens and recall, both with their zero."""
    made = []
    for tokens, recall, *curve in means:
        across, up = np.split(np.array(curve), 2)
        order = np.argsort(across, kind="stable")  # what fills a little more may cost a little less
        made.append(float(recall - np.interp(tokens, across[order], up[order])))
    return made


def _rounded(middle: float | None, low: float | None, high: float | None) -> Estimate:
    told = {"mean": middle, "low": low, "high": high}
    return {name: None if value is None else round(value, DECIMALS) for name, value in told.items()}
