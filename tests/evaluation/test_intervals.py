"""Intervals: what is missing is skipped, and the bootstrap agrees with scipy's and with hand-made cases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap, permutation_test

import corag_ray.evaluation.intervals as intervals
from corag_ray.evaluation.intervals import (
    Interval,
    PairedDifference,
    bootstrap_interval,
    mean,
    paired_bootstrap,
    randomisation_p_value,
)

VALUES = np.random.default_rng(3).gamma(2.0, size=200).tolist()
OTHER = np.random.default_rng(4).gamma(2.5, size=200).tolist()


def test_the_mean_of_nothing_is_missing():
    assert mean([]) is None
    assert mean([None, None]) is None


def test_the_mean_skips_what_is_missing_and_keeps_zeros():
    assert mean([1.0, None, 0.0, 5.0]) == 2.0


def test_the_interval_is_scipys_percentile_interval_within_resampling_noise():
    ours = bootstrap_interval(VALUES, seed=0, resamples=20_000)
    theirs = bootstrap((VALUES,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    assert ours is not None
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_the_paired_interval_is_scipys_over_the_differences():
    ours = paired_bootstrap(VALUES, OTHER, seed=0, resamples=20_000)
    differences = np.subtract(VALUES, OTHER)
    theirs = bootstrap((differences,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    assert ours is not None
    assert ours.mean_difference == pytest.approx(differences.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_two_values_give_their_own_ends():
    # A resample of (0, 1) is 0, 0.5 or 1 with chances 1/4, 1/2, 1/4: the central 95 % reach both ends.
    assert bootstrap_interval([0.0, 1.0], seed=0) == Interval(0.0, 1.0)
    # The central 40 % (from 30 % to 70 %) lie within the middle half.
    assert bootstrap_interval([0.0, 1.0], seed=0, level=0.4) == Interval(0.5, 0.5)


def test_a_constant_difference_has_an_interval_without_width():
    a = [1.5, None, 3.5, 7.5, 2.5]
    b = [1.0, 2.0, 3.0, 7.0, None]
    assert paired_bootstrap(a, b, seed=0) == PairedDifference(0.5, 0.5, 0.5, n=3, p_value=0.25)


def test_pairing_cancels_what_two_columns_share():
    shifted = [value + 0.01 for value in VALUES]
    paired = paired_bootstrap(shifted, VALUES, seed=0)
    assert paired is not None and paired.low is not None
    assert paired.low == pytest.approx(0.01)  # each column alone has an interval of about ±0.2


def test_a_missing_value_changes_no_interval():
    assert bootstrap_interval([*VALUES, None], seed=0) == bootstrap_interval(VALUES, seed=0)


def test_the_seed_alone_decides():
    assert bootstrap_interval(VALUES, seed=5) == bootstrap_interval(VALUES, seed=5)
    assert bootstrap_interval(VALUES, seed=5) != bootstrap_interval(VALUES, seed=6)


def test_drawing_in_blocks_gives_the_same_interval(monkeypatch):
    whole = bootstrap_interval(VALUES, seed=0)
    monkeypatch.setattr(intervals, "_BLOCK", 3 * len(VALUES))  # three resamples at a time
    assert bootstrap_interval(VALUES, seed=0) == whole


def test_one_value_has_no_interval_and_none_has_no_difference():
    assert bootstrap_interval([0.5, None], seed=0) is None
    assert paired_bootstrap([0.5, None], [0.25, 1.0], seed=0) == PairedDifference(0.25, None, None, n=1, p_value=1.0)
    assert paired_bootstrap([0.5, None], [None, 1.0], seed=0) is None


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        paired_bootstrap([1.0, 2.0], [1.0], seed=0)


@pytest.mark.parametrize("size", [3, 9, 13])
def test_the_randomisation_test_over_all_signs_is_scipys_exact_one(size):
    values = np.random.default_rng(size).normal(0.4, 1, size).round(1)

    exact = permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True)
    assert randomisation_p_value(values, seed=0) == pytest.approx(exact.pvalue, abs=1e-9)


def test_the_drawn_randomisation_test_comes_near_scipys_and_never_says_zero():
    values = np.random.default_rng(5).normal(0.15, 1, 200)
    drawn = permutation_test((values,), np.mean, permutation_type="samples", n_resamples=20_000, rng=1)
    ours = randomisation_p_value(values, seed=0)
    assert ours == pytest.approx(drawn.pvalue, abs=4 * (drawn.pvalue / 10_000) ** 0.5)
    assert ours == randomisation_p_value(values, seed=0)
    assert randomisation_p_value([1.0] * 200, seed=0) == 1 / 10_001
    assert randomisation_p_value([0.0] * 200, seed=0) == 1.0


@pytest.mark.parametrize("values", [[0.1, 0.1, 0.1, -0.3], [0.3, 0.6, -0.9], [0.1, 0.2, -0.3] * 10])
def test_differences_that_sum_to_0_are_as_near_to_0_as_can_be_whatever_rounding_leaves(values):
    # Every assignment of signs is at least as far from 0. The last is drawn: 30 signs are more than 10,000 patterns.
    assert randomisation_p_value(values, seed=0) == 1.0
    assert randomisation_p_value(values[::-1], seed=0) == 1.0


def test_one_difference_says_nothing():
    assert randomisation_p_value([0.25], seed=0) == 1.0
