"""Figures and bars of made rows, by hand."""

import pytest

from jobs.search.figures import bars_of, columns_of, difference, figures, keyed
from jobs.search.picture import draw_courses
from jobs.search.rows import Point, Row


def row(strategy, question, *points, data="set"):
    made = tuple(Point(limit, pairs, score, tokens, recall) for limit, pairs, score, tokens, recall in points)
    return Row("f", data, question, "late_interaction", 512, strategy, made)


OURS = [
    row("corag", "a", (60, 60, 0.8, 100, 1.0), (210, 210, 0.9, 80, 1.0)),
    row("corag", "b", (60, 58, 0.6, 300, 0.0), (210, 210, 0.7, 280, 0.5)),
]
REPORT = [
    row("report", "a", (60, 60, 0.5, 90, 0.5), (210, 210, 0.6, 90, 0.5), (590, 590, 0.7, 90, 0.5)),
    row("report", "b", (60, 60, 0.5, 90, 0.5), (210, 210, 0.5, 90, 0.5), (590, 590, 0.6, 90, 0.5)),
]
NAIVE = [row("naive", "a", (210, 60, 0.4, 500, 1.0)), row("naive", "b", (210, 60, 0.4, 500, 1.0))]
BETTER = [row("beam", "a", (60, 60, 0.9, 9, 0.0)), row("beam", "b", (60, 60, 0.8, 9, 0.0))]


def test_a_figure_is_the_mean_over_questions_with_its_interval():
    told = figures(OURS + REPORT, seed=0)
    cell = told["corag"]["60"]
    assert (cell["questions"], cell["pairs"], cell["above_ours"]) == (2, 59.0, None)
    assert (cell["score"]["mean"], cell["recall"]["mean"], cell["tokens"]["mean"]) == (0.7, 0.5, 200.0)
    assert cell["score"]["low"] == 0.6 and cell["score"]["high"] == 0.8
    # report less ours at 60: .5 - .8 and .5 - .6.
    assert told["report"]["60"]["above_ours"]["score"] == {"mean": -0.2, "low": -0.3, "high": -0.1}
    assert told["report"]["590"]["above_ours"] is None  # ours was not read off there


def test_differences_are_over_the_questions_that_both_have():
    columns = columns_of(OURS[:1] + REPORT)
    assert difference(columns["report"][60], columns["corag"][60], "score", 0)["mean"] == -0.3
    assert difference({}, columns["corag"][60], "score", 0) == {"mean": None, "low": None, "high": None}


def test_bars_compare_with_report_with_rivals_and_with_naive_rag():
    told = bars_of(OURS + REPORT + NAIVE + BETTER, seed=0)
    # Ours at 60 less report at 590: .8 - .7, .6 - .6.
    assert told["reaches_report"]["mean"] == 0.05
    assert told["rivals_above"] == {"60": ["beam"], "210": []}
    assert told["recall_less_naive"]["mean"] == -0.25  # 0 and -.5
    assert told["tokens_share"] == pytest.approx((80 + 280) / 1000)
    assert set(bars_of(OURS, seed=0)) == {"rivals_above"}


def test_a_strategy_that_is_missing_a_limit_is_no_rival_there_and_variants_are_none():
    variant = [row("corag swaps=0", q, (60, 60, 0.95, 9, 0.0), (210, 210, 0.95, 9, 0.0)) for q in "ab"]
    assert bars_of(OURS + BETTER + variant, seed=0)["rivals_above"] == {"60": ["beam"], "210": []}


def test_the_last_line_is_keyed_by_set_strategy_pairs_and_measure():
    told = keyed({"set": figures(OURS, seed=0)})
    assert told["set.corag.60.score"] == 0.7
    assert told["set.corag.210.tokens"] == 180.0
    assert len(told) == 6


def test_the_picture_has_a_row_of_panels_a_set(tmp_path):
    of_sets = {name: figures(OURS + REPORT + NAIVE, seed=0) for name in ("one", "two")}
    draw_courses(of_sets, "late_interaction, 512 tokens", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
