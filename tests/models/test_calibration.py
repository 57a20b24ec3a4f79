"""Curves against their formula, a fit against its neighbours, measures by hand, and the file that ships."""

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_ray.errors import DataError
from corag_ray.models.calibration import (
    CALIBRATIONS,
    Calibration,
    cut_to_unit,
    load_calibration,
    read_calibrations,
    sigmoid,
)
from corag_ray.types import Chunk, Evidence, Question, Span
from jobs import fit_calibration as job
from jobs.document_parts import part_of_document, part_of_question

FINITE = st.floats(-1e6, 1e6)


def entry(**changes):
    known = {"reranker": "bm25", "revision": None, "slope": 2.0, "offset": -1.0, "version": 3}
    return known | changes


def written(tmp_path, content):
    path = tmp_path / "calibrations.json"
    path.write_text(content, encoding="utf-8")
    return path


def test_a_curve_by_hand():
    curve = Calibration(2.0, -1.0, 1)
    assert curve.calibrated(0.5) == 0.5
    assert curve.calibrated(1.0) == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-15)
    assert math.isnan(curve.calibrated(math.nan))
    assert [sigmoid(-1e9), sigmoid(1e9)] == [0.0, 1.0]


def test_the_default_cut_by_hand():
    assert [cut_to_unit(value) for value in (-0.2, 0.3, 1.2)] == [0.0, 0.3, 1.0]
    assert math.isnan(cut_to_unit(math.nan))


@given(FINITE, FINITE)
def test_calibrated_scores_stand_in_the_order_of_raw_ones(one, other):
    curve = Calibration(3.0, 0.5, 1)
    low, high = sorted((one, other))
    assert 0 <= curve.calibrated(low) <= curve.calibrated(high) <= 1


@pytest.mark.parametrize("slope", [0.0, -1.0, math.inf, math.nan])
def test_a_curve_that_would_turn_the_order_round_is_refused(slope):
    with pytest.raises(DataError, match=r"^a calibration needs a finite slope above 0"):
        Calibration(slope, 0.0, 1)


def test_a_curve_belongs_to_one_revision(tmp_path):
    path = written(tmp_path, json.dumps([entry(), entry(reranker="q", revision="m 1", slope=5.0)]))
    assert load_calibration("bm25", None, path) == Calibration(2.0, -1.0, 3)
    assert load_calibration("q", "m 1", path) == Calibration(5.0, -1.0, 3)
    assert load_calibration("q", "m 2", path) is None
    assert load_calibration("bm25", "m 1", path) is None


@pytest.mark.parametrize(
    "content", ["", "[", "{}x", "[1]", "[{}]", json.dumps([entry(slope="x")]), json.dumps([entry(slope=-1)])]
)
def test_a_damaged_file_is_one_sentence_with_its_place(tmp_path, content):
    path = written(tmp_path, content)
    with pytest.raises(DataError) as raised:
        load_calibration("bm25", None, path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_file_that_ships_has_a_curve_for_each_reranker_of_the_packages_and_every_curve_helps():
    entries = read_calibrations(CALIBRATIONS)
    assert {name for name, _ in entries} == {"late_interaction", "pooled_embedding", "bm25", "query_likelihood"}
    for fitted in entries.values():
        assert fitted["brier_after"] < min(0.25, fitted["brier_before"])  # 0.25: always saying one half
        assert fitted["pairs_judged"] > 0


def test_measures_by_hand():
    chances, relevant = np.array([0.05, 0.95, 1.0, 0.55]), np.array([False, True, True, False])
    assert job.brier(chances, relevant) == pytest.approx((0.05**2 + 0.05**2 + 0.55**2) / 4)
    # Bins: 0.05 off by 0.05; 0.95 and 1.0 together hold 1.95 of 2; 0.55 off by 0.55.
    assert job.expected_calibration_error(chances, relevant) == pytest.approx((0.05 + 0.05 + 0.55) / 4)


def logistic_draws(slope, offset, n=4000):
    chance = np.random.default_rng(1)
    raw = chance.normal(0.4, 0.2, n)
    return raw, chance.random(n) < 1 / (1 + np.exp(-(slope * raw + offset)))


def test_a_fit_finds_the_curve_that_made_the_draws_and_no_neighbour_is_likelier():
    raw, relevant = logistic_draws(8.0, -3.0)
    slope, offset = job.platt(raw, relevant)
    assert (slope, offset) == (pytest.approx(8.0, rel=0.1), pytest.approx(-3.0, rel=0.1))

    def loss(a, b):
        return np.logaddexp(0, -np.where(relevant, 1, -1) * (a * raw + b)).mean()

    assert loss(slope, offset) < min(loss(slope + a, offset + b) for a in (-0.02, 0.02) for b in (-0.01, 0.01))


def test_scores_that_speak_against_the_evidence_give_no_curve():
    raw, relevant = logistic_draws(-8.0, 3.0)
    sample = job.Sample(list(raw), list(raw), list(relevant))
    with pytest.raises(DataError, match="slope above 0"):
        job.judged_fit(sample, sample)


def test_half_of_the_drawn_combinations_hold_evidence_each_size_once_and_no_chunk_twice():
    chunks = [Chunk(n, "d", n, 10 * n, 10 * n + 10, "x" * 10, 5) for n in range(7)]
    question = Question("q", "?", evidence=(Evidence(Span("d", 0, 10)), Evidence(Span("d", 30, 40))))
    for seed in range(50):
        drawn = job.draw(chunks, question, random.Random(seed))
        assert [(len(c), held) for c, held in drawn] == [(n, held) for n in (1, 2, 3) for held in (True, False)]
        for combination, held in drawn:
            assert len(set(combination)) == len(combination)
            assert bool({0, 3} & set(combination)) == held


def test_a_question_counts_only_where_all_its_evidence_is_in_one_half():
    halves = {part_of_document(f"d{n}", 2): f"d{n}" for n in range(50)}
    evidence = {half: Evidence(Span(halves[half], 0, 1)) for half in (0, 1)}
    assert part_of_question(Question("q", "?", evidence=(evidence[1], evidence[1])), 2) == 1
    assert part_of_question(Question("q", "?", evidence=(evidence[0], evidence[1])), 2) is None
    assert part_of_question(Question("q", "?"), 2) is None


def test_a_version_rises_with_the_curve_and_stays_with_it():
    stored = {("bm25", None): entry(), ("bm25", "old"): entry(version=7)}
    assert job.next_version(stored, "bm25", None, {"slope": 2.0, "offset": -1.0}) == 3
    assert job.next_version(stored, "bm25", None, {"slope": 2.1, "offset": -1.0}) == 8
    assert job.next_version(stored, "pooled_embedding", None, {"slope": 2.0, "offset": -1.0}) == 1
