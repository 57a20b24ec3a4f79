"""Orders that do not depend on luck: top rows and reciprocal rank fusion."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_ray.models.ranking import fuse, top_rows


def top(rows, scores, ids, k):
    return top_rows(np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float64), np.array(ids, np.uint64), k)


def test_the_best_come_first_and_ties_by_chunk_id_not_by_row():
    # rows 0 and 2 tie; the id of row 2 is the smaller one. Ids above 2^63 are large, not negative.
    assert top([0, 1, 2], [0.5, 0.9, 0.5], [(1 << 64) - 1, 7, 3], 3) == [(1, 0.9), (2, 0.5), (0, 0.5)]


def test_a_tie_at_the_cut_is_cut_by_chunk_id():
    assert top([0, 1, 2, 3], [0.5, 0.5, 0.9, 0.5], [4, 3, 2, 1], 2) == [(2, 0.9), (3, 0.5)]


def test_only_the_given_rows_take_part():
    assert top([5, 3], [0.1, 0.2], [0] * 6, 9) == [(3, 0.2), (5, 0.1)]
    assert top([], [], [1, 2], 3) == []
    assert top([0, 1], [0.1, 0.2], [1, 2], 0) == []


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, (1 << 64) - 1)), max_size=40, unique_by=lambda row: row[1]),
    st.integers(0, 45),
)
def test_top_rows_is_the_prefix_of_the_full_sort(scored, k):
    scores, ids = [float(score) for score, _ in scored], [chunk_id for _, chunk_id in scored]
    order = sorted(range(len(scored)), key=lambda row: (-scores[row], ids[row]))
    assert top(range(len(scored)), scores, ids, k) == [(row, scores[row]) for row in order[:k]]


def test_fusion_sums_the_reciprocals_of_sixty_plus_rank():
    ids = np.array([30, 20, 10, 0], np.uint64)
    dense, lexical = [(2, 0.9), (0, 0.8)], [(0, 12.0), (3, 5.0), (2, 1.0)]
    # row 0: 1/62 + 1/61; row 2: 1/61 + 1/63; row 3: 1/62
    assert fuse([dense, lexical], ids, 9) == [
        (0, pytest.approx(1 / 62 + 1 / 61)),
        (2, pytest.approx(1 / 61 + 1 / 63)),
        (3, pytest.approx(1 / 62)),
    ]
    assert [row for row, _ in fuse([dense, lexical], ids, 2)] == [0, 2]


def test_fusion_breaks_ties_by_chunk_id_and_reads_ranks_not_scores():
    ids = np.array([30, 20], np.uint64)
    assert [row for row, _ in fuse([[(0, 99.0)], [(1, 0.001)]], ids, 2)] == [1, 0]
    assert fuse([[], []], ids, 2) == []
