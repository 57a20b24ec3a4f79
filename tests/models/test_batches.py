"""Batches by hand: how they are cut, padded and counted, and that one alone is made ahead."""

import threading

import numpy as np
import pytest

from corag_ray.models.batches import Padding, length_batches, one_ahead, padded


def test_the_longest_go_first_and_a_batch_keeps_its_padded_size():
    # By length: 1 (6), 4 (5), 0 (3), 3 (3), 2 (1). 2 x 6 = 12 > 10; 5 x 2 = 10, and a third makes 15; 3 x 2 is within.
    assert list(length_batches([3, 6, 1, 3, 5], 10)) == [[1], [4, 0], [3, 2]]


def test_what_exceeds_the_bound_alone_stands_alone_and_with_a_bound_of_one_all_do():
    assert list(length_batches([2, 30, 2], 4)) == [[1], [0, 2]]
    assert list(length_batches([0, 2, 0], 1)) == [[1], [0], [2]]
    assert list(length_batches([], 10)) == []


def test_rows_are_filled_at_the_end_and_masked_there():
    ids, mask = padded([[5, 6, 7], np.array([8], dtype=np.int32)], fill=1)
    assert ids.tolist() == [[5, 6, 7], [8, 1, 1]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert (ids.dtype, mask.dtype) == (np.int64, np.int64)


def test_the_padding_share_is_that_of_all_batches_together():
    padding = Padding()
    assert padding.share == 0
    padding.count([4, 2, 1])  # 12 positions, 7 tokens
    padding.count([8])  # 8 positions, 8 tokens
    assert (padding.positions, padding.tokens) == (20, 15)
    assert padding.share == pytest.approx(0.25)


def test_one_is_made_ahead_in_another_thread_and_no_more():
    made, second = [], threading.Event()

    def make(item):
        made.append((item, threading.current_thread()))
        if item == 2:
            second.set()
        return item * 10

    results = one_ahead(make, [1, 2, 3, 4])
    assert next(results) == 10
    assert second.wait(timeout=20)
    assert [item for item, _ in made] == [1, 2]
    assert threading.current_thread() not in {thread for _, thread in made}
    assert list(results) == [20, 30, 40]
    assert list(one_ahead(make, [])) == []


def test_what_goes_wrong_while_making_reaches_the_caller():
    results = one_ahead(lambda item: 1 // item, [1, 0])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
