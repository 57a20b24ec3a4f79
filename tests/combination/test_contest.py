"""The contest: limits, the estimate, what may not take part, and its sides on made-up vectors."""

import io
import json
from types import SimpleNamespace

import pytest
from made_questions import DIM, made_example
from rich.console import Console

from corag_ray.errors import DataError
from corag_ray.models.set_head import HeadShape
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Evidence, Question, Span
from jobs.combination.checkpoint import Recipe
from jobs.combination.contest import Contest, Outcome, Teaching
from jobs.combination.labels import Labelled
from jobs.combination.lessons import few
from jobs.combination.timed import Terms
from jobs.contest_combination import Heads, check_unseen, limits_of, of_all, seconds_of
from jobs.document_parts import part_of_document
from jobs.train_combination_reranker import Drawn
from jobs.train_reranker import FIGURES, PARTS, TEST_PART

EXAMPLES = [made_example(seed) for seed in range(12)]
DEV, TEST = [made_example(seed) for seed in range(20, 24)], [made_example(seed) for seed in range(30, 36)]
RECIPE = Recipe(HeadShape(DIM, projected=4, width=8, heads=2, hidden=8), batch=4, mined=0)


def heads(work, passes=2, dev=DEV):
    screen = Console(file=io.StringIO(), width=80)
    contest = Contest(EXAMPLES, dev, TEST, Terms(1000, passes), work, screen)
    return Heads(contest, RECIPE, None, Compute(1))


def teaching(threshold=0.5):
    chosen = [tuple(few(example.asked, 0, 0, 6)) for example in EXAMPLES[:6]]
    labels = [Labelled(one, tuple(float(len(combination)) for combination in one), 0.25) for one in chosen]
    return Teaching(EXAMPLES[:6], labels, threshold)


def test_every_side_of_heads_trains_on_its_questions_and_is_judged_on_the_test_part(tmp_path):
    sides = {name: heads(tmp_path).side(name, teaching(), 0.5) for name in ("head", "likelihood", "mixed")}
    assert [one.questions for one in sides.values()] == [12, 6, 12]
    assert [one.steps for one in sides.values()] == [6, 4, 6]  # two passes, four questions a step
    assert all(one.passes == 2 and len(one.dev) == 4 and one.seconds > 0 for one in sides.values())
    assert all(one.figures["both_several"]["questions"] == len(TEST) for one in sides.values())
    assert len(list(tmp_path.glob("contest-*.pt"))) == 3
    json.dumps(sides["mixed"].figures)


def test_a_side_that_is_done_is_not_trained_again_unless_what_it_depends_on_has_changed(tmp_path):
    first = heads(tmp_path).side("likelihood", teaching(), 0.5)
    assert heads(tmp_path).side("likelihood", teaching(), 0.5).seconds == first.seconds
    assert len(list(tmp_path.glob("*.pt"))) == 1
    heads(tmp_path).side("likelihood", teaching(threshold=0.7), 0.5)
    heads(tmp_path, dev=DEV[:2]).side("likelihood", teaching(), 0.5)
    heads(tmp_path, passes=3).side("likelihood", teaching(), 0.5)
    assert len(list(tmp_path.glob("*.pt"))) == 4


def test_labels_are_told_by_number_and_cost():
    told = teaching().figures()
    assert (told["questions"], told["combinations"], told["cpu_seconds"]) == (6, 36, 1.5)
    assert told["threshold"] == 0.5
    assert told["pairs_ordered"] > 0


def test_a_row_says_whose_clock_its_seconds_are_of():
    assert Outcome({}, 1.0, 61.7, steps=3).label("mixed") == "mixed, 62 CPU s"
    assert Outcome({}, 1.0, 700.0).label("head") == "head, 700 s by its card"


def test_a_small_limit_bounds_the_others():
    assert limits_of(1000, 1200, 40, 150) == {"train": (1000, 1200), "dev": (40, 40), "test": (150, 150)}
    assert limits_of(20, 1200, 40, 150) == {"train": (20, 24), "dev": (20, 20), "test": (20, 20)}
    assert limits_of(20, 0, 40, 150)["train"] == (20, 0)


def test_the_estimate_adds_drawing_training_the_slow_sides_judging_and_the_teachers_labels():
    limits = {"train": (100, 100), "dev": (10, 10), "test": (30, 30)}
    drawing = 2 * 280 * 0.06
    assert seconds_of(2, limits, ["head"], 80, 100, threads=1) == pytest.approx(drawing + 100)
    # 2 sets: 20 questions judged four times and 60 once, 8 pairs each, 20 a second.
    judging = 2 * (4 * 20 + 60) * 8 / 20
    expected = drawing + 100 + judging
    assert seconds_of(2, limits, ["head", "cross_encoder"], 80, 100, threads=2) == pytest.approx(expected)
    # 100 questions of 6 combinations, 4 a second, once for both sides.
    expected = drawing + 100 + 150
    assert seconds_of(2, limits, ["likelihood", "mixed"], 80, 100, threads=2) == pytest.approx(expected)


def test_the_parts_of_all_sets_are_put_together():
    sets = [Drawn(EXAMPLES[:2], DEV[:1], TEST[:1]), Drawn(EXAMPLES[2:3], DEV[1:3], [])]
    assert of_all(sets, "train") == EXAMPLES[:3]
    assert of_all(sets, "dev") == DEV[:3]
    assert of_all(sets, "test") == TEST[:1]


def asked_about(doc_id):
    return Question(doc_id, "why?", evidence=(Evidence(Span(doc_id, 0, 9)),))


def test_a_cross_encoder_that_may_have_learned_from_the_test_part_is_refused(tmp_path):
    ids = [f"d{number}" for number in range(40)]
    kept_back = next(doc_id for doc_id in ids if part_of_document(doc_id, PARTS) == TEST_PART)
    trained_on = next(doc_id for doc_id in ids if part_of_document(doc_id, PARTS) != TEST_PART)
    opened = {"mine": SimpleNamespace(questions=[asked_about(kept_back), asked_about(trained_on)])}
    parts = {kept_back: "test", trained_on: "test"}
    check_unseen(opened, parts, None, None)
    check_unseen(opened, parts, None, tmp_path)  # it does not say that it learned from this set
    (tmp_path / FIGURES).write_text(json.dumps({"data": ["mine"]}))
    with pytest.raises(DataError, match="may have learned from 1 of the 2 questions of the test part"):
        check_unseen(opened, parts, None, tmp_path)
    check_unseen(opened, parts | {trained_on: "train"}, None, tmp_path)
