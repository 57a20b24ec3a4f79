"""From rows to figures: score, recall and tokens by strategy and pairs, and how far others lie from ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from corag_ray.evaluation.intervals import paired_bootstrap
from jobs.budgets.curves import DECIMALS, Estimate, estimate
from jobs.search.contestants import NAIVE, OURS
from jobs.search.rows import Point, Row

Asked = tuple[str, str]
"""A question: data set and id."""
Column = Mapping[Asked, Point]
"""What one strategy had chosen at one limit of pairs, by question."""
Columns = Mapping[str, Mapping[int, Column]]
"""By strategy and limit."""
MEASURES = ("score", "recall", "tokens")
FEWEST_PAIRS, RECALL_PAIRS, MOST_PAIRS = 60, 210, 590
"""Of the bars: where ours reaches `report`, where recall is compared with NaiveRAG's, where `report` is at its end."""


def columns_of(rows: Sequence[Row]) -> Columns:
    """Of the rows of one reranker and budget."""
    columns: dict[str, dict[int, dict[Asked, Point]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        for point in row.points:
            columns[row.strategy][point.limit][row.data, row.question_id] = point
    return columns


def figures(rows: Sequence[Row], seed: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Of one data set, reranker and budget, by strategy and limit of pairs.

    Each holds `questions`, `pairs` (mean asked for), an estimate of every measure, and `above_ours`: the estimates of
    score and recall less those of ours at the same limit, over the same questions.
    """
    columns = columns_of(rows)
    ours = columns.get(OURS, {})
    return {
        strategy: {str(limit): _cell(column, ours.get(limit), seed) for limit, column in by_limit.items()}
        for strategy, by_limit in columns.items()
    }


def difference(one: Column, other: Column, measure: str, seed: int) -> Estimate:
    """The mean of a measure less another column's, over questions where both have it, with its 95 % interval."""
    asked = [question for question in one if question in other]
    found = paired_bootstrap(
        [getattr(one[question], measure) for question in asked],
        [getattr(other[question], measure) for question in asked],
        seed,
    )
    if found is None:
        return {"mean": None, "low": None, "high": None}
    ends = {"mean": found.mean_difference, "low": found.low, "high": found.high}
    return {name: None if value is None else round(value, DECIMALS) for name, value in ends.items()}


def bars_of(rows: Sequence[Row], seed: int) -> dict[str, Any]:
    """What the bars ask of one data set, reranker and budget; what cannot be told from the rows is left out.

    Returns:
        `reaches_report`: score of ours at 60 pairs less `report`'s at 590. `rivals_above`: by limit the strategies
        whose score is above ours, the whole interval of the difference. `recall_less_naive` and `tokens_share` at 210
        pairs: recall of ours less NaiveRAG's, and its tokens as a share of NaiveRAG's.
    """
    columns = columns_of(rows)
    told: dict[str, Any] = {}
    ours, report, naive = (columns.get(name, {}) for name in (OURS, "report", NAIVE))
    if FEWEST_PAIRS in ours and MOST_PAIRS in report:
        told["reaches_report"] = difference(ours[FEWEST_PAIRS], report[MOST_PAIRS], "score", seed)
    told["rivals_above"] = {
        str(limit): [
            strategy
            for strategy, by_limit in columns.items()
            if not strategy.startswith(OURS) and (difference(by_limit[limit], column, "score", seed)["low"] or 0.0) > 0
        ]
        for limit, column in ours.items()
    }
    if RECALL_PAIRS in ours and RECALL_PAIRS in naive:
        mine, other = ours[RECALL_PAIRS], naive[RECALL_PAIRS]
        told["recall_less_naive"] = difference(mine, other, "recall", seed)
        tokens = sum(point.tokens for point in other.values())
        told["tokens_share"] = (
            round(sum(point.tokens for point in mine.values()) / tokens, DECIMALS) if tokens else None
        )
    return told


def keyed(of_sets: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, float | None]:
    """Means by `<set>.<strategy>.<pairs>.<measure>`, of figures by data set."""
    return {
        f"{name}.{strategy}.{limit}.{measure}": cell[measure]["mean"]
        for name, by_strategy in of_sets.items()
        for strategy, by_limit in by_strategy.items()
        for limit, cell in by_limit.items()
        for measure in MEASURES
    }


def _cell(column: Column, ours: Column | None, seed: int) -> dict[str, Any]:
    points = list(column.values())
    above = None
    if ours is not None and ours is not column:
        above = {measure: difference(column, ours, measure, seed) for measure in ("score", "recall")}
    return {
        "questions": len(points),
        "pairs": round(sum(point.pairs for point in points) / len(points), 1),
        **{measure: estimate([getattr(point, measure) for point in points], seed) for measure in MEASURES},
        "above_ours": above,
    }
