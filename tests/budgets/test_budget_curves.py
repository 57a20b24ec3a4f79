"""Figures from rows, worked by hand."""

import numpy as np
import pytest

from jobs.budgets.contestants import NAIVE
from jobs.budgets.curves import above_at_equal_tokens, figures
from jobs.budgets.picture import draw_curves
from jobs.budgets.row_log import Row


def row(question, method, budget, tokens, recall, precision=0.5, pairs=7, unscored=0):
    return Row(f"{method} {budget}", "set", question, method, budget, tokens, recall, precision, pairs, unscored)


def above(tokens, recall, curve_tokens, curve_recall):
    columns = (np.array(column, dtype=float) for column in (tokens, recall, curve_tokens, curve_recall))
    return above_at_equal_tokens(*columns, seed=0)


def test_recall_is_compared_with_the_curve_at_as_many_tokens():
    # Questions alike: at 150 tokens the line from (100, .2) to (200, .6) stands at .4.
    found = above([150] * 3, [0.5] * 3, [[100, 200]] * 3, [[0.2, 0.6]] * 3)
    assert found == {"mean": pytest.approx(0.1), "low": pytest.approx(0.1), "high": pytest.approx(0.1)}


def test_the_curve_begins_without_tokens_and_goes_on_level():
    assert above([50], [0.5], [[100, 200]], [[0.2, 0.6]])["mean"] == pytest.approx(0.4)  # .1 at 50 tokens
    assert above([300], [0.5], [[100, 200]], [[0.2, 0.6]])["mean"] == pytest.approx(-0.1)
    assert above([0], [0.0], [[0, 200]], [[0.0, 0.6]])["mean"] == 0.0


def test_a_larger_budget_may_cost_less():
    assert above([150], [0.5], [[200, 100]], [[0.6, 0.2]])["mean"] == pytest.approx(0.1)


def test_means_are_taken_before_the_curve_is_read_and_the_interval_draws_whole_questions():
    # Two questions, NaiveRAG's points (100, 0), (200, 1) and (100, 1), (200, 1): their mean is (100, .5), (200, 1).
    # The method's are (100, 0) and (200, 1): at 150 mean tokens .5 - .75 = -.25. A resample of the first alone gives
    # 0 - 0, of the second alone 1 - 1; of both the above. Each question's own difference is 0, so no other is drawn.
    found = above([100, 200], [0.0, 1.0], [[100, 200]] * 2, [[0.0, 1.0], [1.0, 1.0]])
    assert found == {"mean": -0.25, "low": -0.25, "high": 0.0}


def test_one_question_has_no_interval():
    assert above([50], [0.5], [[100]], [[0.2]]) == {"mean": 0.4, "low": None, "high": None}


def test_figures_compare_a_slow_method_with_naive_rag_on_its_own_questions():
    rows = [row(f"q{n}", NAIVE, 100, 100, recall) for n, recall in enumerate([0.0, 0.0, 1.0, 1.0])]
    rows += [row("q0", "mine", 100, 50, 0.5), row("q1", "mine", 100, 50, 0.5)]
    told = figures(rows, seed=0)
    assert list(told) == [NAIVE, "mine"]
    mine = told["mine"]["100"]
    assert (mine["questions"], mine["failed"], mine["pairs"], mine["unscored"]) == (2, 0, 7.0, 0)
    assert mine["recall"]["mean"] == 0.5 and mine["tokens"]["mean"] == 50.0 and mine["precision"]["mean"] == 0.5
    assert mine["above_naive"] == mine["above_at_equal_tokens"] == {"mean": 0.5, "low": 0.5, "high": 0.5}
    assert told[NAIVE]["100"]["recall"]["mean"] == 0.5
    assert told[NAIVE]["100"]["above_naive"] is None


def test_a_question_that_failed_is_counted_and_left_out_of_every_mean():
    rows = [row("q0", NAIVE, 100, 100, 0.0), row("q1", NAIVE, 100, 100, 1.0)]
    rows += [row("q0", "mine", 100, 100, 1.0), row("q1", "mine", 100, None, None, None, unscored=4)]
    mine = figures(rows, seed=0)["mine"]["100"]
    assert (mine["questions"], mine["failed"], mine["unscored"]) == (2, 1, 4)
    assert mine["recall"] == mine["above_naive"] == mine["above_at_equal_tokens"]
    assert mine["recall"] == {"mean": 1.0, "low": None, "high": None}
    failed = figures([rows[0], row("q0", "mine", 100, None, None, None)], seed=0)["mine"]["100"]
    assert {failed[key]["mean"] for key in ("recall", "above_naive", "above_at_equal_tokens")} == {None}


def test_questions_of_two_sets_may_have_one_id():
    rows = [Row("f", data, "1", NAIVE, 100, 100, recall, None, 0, 0) for data, recall in (("a", 0.0), ("b", 1.0))]
    assert figures(rows, seed=0)[NAIVE]["100"]["recall"]["mean"] == 0.5


def test_the_picture_has_a_panel_for_each_set_and_takes_what_was_not_measured(tmp_path):
    rows = [row(q, NAIVE, budget, budget, 0.5) for q in "ab" for budget in (64, 128)]
    rows += [row(q, method, 128, 90, 0.6) for q in "ab" for method in ("mine", "mine_greedy")]
    rows += [row(q, "empty", 64, 0, 0.0, None) for q in "ab"]
    rows += [row(q, "failed", 64, None, None, None) for q in "ab"]
    told = figures(rows, seed=0)
    draw_curves({"one": told}, tmp_path / "one.png")
    draw_curves({"one": told, "two": told}, tmp_path / "two.png")
    widths = [int.from_bytes((tmp_path / f"{name}.png").read_bytes()[16:20]) for name in ("one", "two")]
    assert widths[1] - widths[0] == pytest.approx(4.2 * 150, abs=2)
