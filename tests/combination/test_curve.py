"""The curve of `combination`: fitted on shares, judged elsewhere, and kept beside the weights that it is of."""

import json

import numpy as np
import pytest

from corag_ray.models.calibration import read_calibrations, sigmoid
from corag_ray.models.combination_weights import CURVES, WEIGHTS, head_calibration
from jobs.combination.curve import Graded, fit, write_curve


def drawn(slope, offset, seed, count=4000):
    """Scores, and as shares of evidence the very probabilities."""
    raw = np.random.default_rng(seed).normal(scale=2, size=count)
    return Graded(raw, np.array([sigmoid(slope * value + offset) for value in raw]))


def test_the_curve_that_made_the_shares_is_found_again():
    fitted = fit(drawn(0.7, -1.2, 0), drawn(0.7, -1.2, 1))
    assert (fitted["slope"], fitted["offset"]) == (0.7, -1.2)
    assert (fitted["pairs_fitted"], fitted["pairs_judged"]) == (4000, 4000)
    assert fitted["brier_after"] < 1e-6 < fitted["brier_before"]
    assert fitted["calibration_error_after"] < 1e-4 < fitted["calibration_error_before"]


def test_scores_that_fall_with_evidence_give_no_curve():
    assert fit(drawn(-0.5, 0.0, 0), drawn(-0.5, 0.0, 1)) is None


def test_without_a_part_to_judge_by_it_is_fitted_all_the_same():
    fitted = fit(drawn(0.7, -1.2, 0), Graded(np.array([]), np.array([])))
    assert fitted == {"slope": 0.7, "offset": -1.2, "pairs_fitted": 4000}


@pytest.fixture(autouse=True)
def nothing_read_before():
    read_calibrations.cache_clear()


def test_a_curve_counts_for_its_own_weights_alone(tmp_path):
    assert head_calibration(tmp_path) is None
    (tmp_path / WEIGHTS).write_bytes(b"one")
    assert head_calibration(tmp_path) is None
    write_curve(tmp_path, {"slope": 1.5, "offset": -0.25}, ["selqa"])
    found = head_calibration(tmp_path)
    assert (found.slope, found.offset, found.version) == (1.5, -0.25, 1)
    (tmp_path / WEIGHTS).write_bytes(b"other")
    assert head_calibration(tmp_path) is None


def test_the_next_curve_has_the_next_version_and_the_same_one_its_own(tmp_path):
    (tmp_path / WEIGHTS).write_bytes(b"one")
    versions = []
    for slope in (1.5, 1.5, 1.6):
        read_calibrations.cache_clear()
        versions.append(write_curve(tmp_path, {"slope": slope, "offset": 0.0}, ["selqa"])["version"])
    assert versions == [1, 1, 2]
    [entry] = json.loads((tmp_path / CURVES).read_text("utf-8"))
    assert (entry["reranker"], entry["data"]) == ("combination", ["selqa"])
