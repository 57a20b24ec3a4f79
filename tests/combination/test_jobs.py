"""What the two jobs make around training and judging: the estimate, the card, and the table."""

import io
import json

import numpy as np
import pytest
from made_questions import DIM, asked_of, made_example
from rich.console import Console

from corag_ray.errors import DataError
from corag_ray.models.combination_weights import CARD
from corag_ray.models.set_head import HeadShape, SetHead
from corag_ray.models.torch_setup import Compute
from jobs.bench_combination import HEADINGS, check_split, first_of_kind, read_card, table_of
from jobs.combination.checkpoint import Example, Recipe
from jobs.combination.parts import fingerprint_of
from jobs.combination.sense import Sense, figures, mean_share
from jobs.combination.training import Trained
from jobs.train_combination_reranker import (
    LICENCES,
    Drawn,
    card_of,
    graded_by,
    seconds_of,
    sense_of,
    watched_training,
)

SHAPE = HeadShape(DIM, projected=4, width=8, heads=2, hidden=8)


def test_the_best_pass_is_told_by_the_mean_of_the_shares_that_were_measured_order_apart():
    senses = [
        Sense("several", True, True, True, None),
        Sense("several", False, True, None, True),
        Sense("single", None, False, True, False),
        Sense("single", None, False, True, False),
    ]
    # both: 1/2 of several, none joined; irrelevant 1/2; duplicate 1.
    assert mean_share(figures(senses)) == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    assert mean_share(figures([])) == 0


def test_the_estimate_grows_with_passes_and_questions_and_falls_with_threads():
    recipe = Recipe(SHAPE, epochs=2, mined=100)
    # 2 passes of 500 questions, 22 combinations each, 500 a second; one round of 100 searches at .12 s.
    assert seconds_of(recipe, 500, threads=1) == pytest.approx((44 + 12) / 0.8)
    assert seconds_of(recipe, 500, threads=2) == pytest.approx((44 + 12) / 1.6)


def test_a_head_is_judged_by_what_it_says_of_stored_matches():
    head = SetHead(SHAPE).eval()
    examples = [made_example(seed) for seed in range(40)]
    found = sense_of(examples, head, None, Compute(1))
    assert [one.kind for one in found] == ["several"] * 40
    assert all(one.both is not None and one.duplicate is not None for one in found)
    of_dev = graded_by(examples, head, None, Compute(1), seed=0)
    assert len(of_dev.raw) == len(of_dev.shares) > 40 * 10
    assert {0, 0.5, 1} <= set(of_dev.shares)


def test_a_watched_run_tells_loss_and_figures_of_every_pass_without_a_terminal(tmp_path):
    examples, written = [made_example(seed) for seed in range(12)], io.StringIO()
    recipe = Recipe(SHAPE, epochs=2, batch=4, mined=3)
    screen = Console(file=written, width=80)
    trained = watched_training(examples, examples[:4], recipe, tmp_path / "c.pt", None, Compute(1), screen)
    lines = written.getvalue().splitlines()
    assert len([line for line in lines if line.startswith("dev: both_several ")]) == len(trained.judged) == 2
    assert len([line for line in lines if line.startswith("pass 2: 3 searched, ")]) == 1
    assert f"loss {np.mean(trained.losses):.3f}" in written.getvalue()


def test_the_card_says_what_was_trained_on_under_which_licence():
    head = SetHead(SHAPE)
    trained = Trained(head, [0.61234, 0.7], [3.0] * 30 + [1.0] * 20, {0: [(1,), (2,)], 5: [(0,)]})
    single, joined = Example(asked_of([{0}], kind="single"), None), Example(asked_of([{0}, {1}], kind="joined"), None)
    sets = {name: Drawn([single, joined, joined], [single], []) for name in ("selqa", "mine")}
    card = json.loads(json.dumps(card_of(Recipe(head.shape, seed=4), trained, sets, 96)))
    assert [entry["licence"] for entry in card["data"]] == [
        LICENCES["selqa"],
        "not known to this job: its user's to check",
    ]
    assert card["data"][0]["questions"] == {"train": {"single": 1, "joined": 2}, "dev": {"single": 1}, "test": {}}
    assert card["recipe"]["seed"] == 4
    assert "chunks of 96 tokens" in " ".join(card["limits"])
    assert card["mined_combinations"] == 3
    assert card["loss_at_both_ends"] == [3.0, 1.0]
    assert card["dev_by_pass"] == [0.6123, 0.7]
    assert card["parameters"] == sum(weight.numel() for weight in head.parameters())


def test_a_card_that_does_not_tell_the_test_part_is_refused(tmp_path):
    with pytest.raises(DataError, match="is no model card of a set head"):
        read_card(tmp_path)
    for content in ("{}", "[]", '{"split_fingerprint": "x", "data": [{}]}', "no JSON"):
        (tmp_path / CARD).write_text(content)
        with pytest.raises(DataError, match="is no model card of a set head"):
            read_card(tmp_path)
    parts = {"a": "test", "b": "train"}
    card = {"split_fingerprint": fingerprint_of(parts), "data": [{"name": "selqa"}]}
    (tmp_path / CARD).write_text(json.dumps(card))
    assert read_card(tmp_path) == card
    check_split(card, parts)
    with pytest.raises(DataError, match="its test part is no longer known"):
        check_split(card, {"a": "train", "b": "train"})


def test_slow_rerankers_judge_the_first_few_of_each_kind():
    asked = [asked_of([{0}], kind=kind, text=f"{n}?") for n, kind in enumerate(["single", "joined"] * 3 + ["several"])]
    assert [one.text for one in first_of_kind(asked, 2)] == ["0?", "1?", "2?", "3?", "6?"]


def test_the_table_has_a_row_a_reranker_and_a_dash_where_nothing_was_measured():
    measured = {"share": 0.75, "low": 0.7, "high": 0.84, "questions": 90}
    missing = {"share": None, "low": None, "high": None, "questions": 0}
    one = {"share": 1.0, "low": None, "high": None, "questions": 1}
    row = dict(zip(HEADINGS, [measured, one, measured, measured, missing], strict=True))
    written = io.StringIO()
    Console(width=250, file=written).print(table_of({"mine": row}, {"mine": 3456.7}))
    [line] = [line for line in written.getvalue().splitlines() if "mine" in line]
    cells = [cell.strip() for cell in line.strip("│ ").split("│")]
    assert cells == ["mine", "0.750 ± 0.070 (90)", "1.000 (1)", *["0.750 ± 0.070 (90)"] * 2, "–", "3,457"]
