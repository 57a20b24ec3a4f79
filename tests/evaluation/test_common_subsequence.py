"""The longest common subsequence: brute force, rouge-score's own table, and blocks of every width."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

import corag_ray.evaluation.common_subsequence as module
from corag_ray.evaluation.common_subsequence import common_subsequence_length

LETTERS = st.lists(st.sampled_from("abcd"), max_size=9)
LIBRARY = RougeScorer(["rougeL"])


def by_brute_force(a, b):
    """The longest of all subsequences of `a` that `b` holds in order."""
    kept = (picked for size in range(len(a) + 1) for picked in itertools.combinations(a, size))
    return max(len(picked) for picked in kept if holds_in_order(iter(b), picked))


def holds_in_order(rest, wanted):
    return all(token in rest for token in wanted)


@given(LETTERS, LETTERS)
def test_it_is_the_longest_by_brute_force(a, b):
    assert common_subsequence_length(a, b) == by_brute_force(a, b)


@pytest.mark.parametrize("width", [1, 2, 7, 64])
@given(a=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=70), b=LETTERS.map(lambda found: found * 9))
def test_blocks_of_any_width_give_rouge_scores_length(width, a, b):
    b = [*b, "z"]
    recall = LIBRARY.score(" ".join(b), " ".join(a))["rougeL"].recall
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", width)
        assert common_subsequence_length(a, b) / len(b) == recall


@pytest.mark.parametrize(
    ("a", "b", "length"),
    [("", "", 0), ("", "ab", 0), ("abc", "abc", 3), ("abcab", "abdab", 4), ("aab", "ab", 2), ("xay", "xby", 2)],
)
def test_equal_ends_count_once(a, b, length):
    assert common_subsequence_length(a, b) == common_subsequence_length(b, a) == length
