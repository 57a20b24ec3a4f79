"""What the scorer's benchmark makes of its sides' scores and seconds."""

import math
from types import SimpleNamespace

import pytest
import torch

from jobs.bench_scorer import Side, compare, operations, time_sides


def side(scores, seconds):
    return Side(lambda numbers: [scores[n] for n in numbers], seconds, dict(enumerate(scores)))


def test_rates_ratios_and_agreement_are_with_flag_embedding_query_by_query():
    sides = {
        "ours": side([3.0, 2.0, 1.0, 5.0, 6.0], 2.0),
        "flag_embedding": side([3.0, 1.0, 2.0, 6.0, 5.0], 3.0),
        "sentence_transformers": side([0.0] * 5, 4.0),
    }
    found = compare(sides, [0, 0, 0, 1, 1])
    assert found["pairs_a_second"] == {"ours": 2.5, "flag_embedding": 1.7, "sentence_transformers": 1.2}
    assert (found["times_flag_embedding"], found["times_sentence_transformers"]) == (1.5, 2.0)
    # The first query has 2 of 3 pairs of scores in the same order, (2 - 1) / 3, the second none, -1.
    assert found["kendall_tau"] == pytest.approx((1 / 3 - 1) / 2, abs=1e-4)
    assert found["same_top"] == 0.5


def test_int8_is_a_side_of_its_own_with_its_rate_against_ours_and_its_agreement():
    sides = {
        "ours": side([1.0, 2.0, 3.0], 3.0),
        "onnx_int8": side([1.0, 3.0, 2.0], 2.0),
        "flag_embedding": side([1.0, 2.0, 3.0], 3.0),
        "sentence_transformers": side([0.0] * 3, 3.0),
    }
    found = compare(sides, [0, 0, 0])
    assert (found["kendall_tau"], found["same_top"]) == (1, 1)
    assert found["onnx_int8"] == {"times_ours": 1.5, "kendall_tau": pytest.approx(1 / 3, abs=1e-4), "same_top": 0}
    assert "onnx_int8" not in compare({name: one for name, one in sides.items() if name != "onnx_int8"}, [0, 0, 0])


def test_every_side_scores_every_pair_once_and_each_comes_first_in_a_block():
    calls = []
    sides = {
        name: Side(lambda numbers, name=name: calls.append((name, list(numbers))) or [math.pi] * len(numbers))
        for name in "abc"
    }
    time_sides(sides, 6)
    timed = calls[3:]  # behind one untimed call a side
    assert [name for name, _ in timed] == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert all(sorted(n for name, own in timed if name == one for n in own) == list(range(6)) for one in "abc")


def test_operations_are_two_a_weight_and_token_and_those_of_attention():
    encoder = torch.nn.Linear(3, 4)
    model = SimpleNamespace(
        base_model=SimpleNamespace(encoder=encoder), config=SimpleNamespace(num_hidden_layers=2, hidden_size=3)
    )
    # 12 weights: 2 x 12 x (5 + 1); attention: 4 x 2 layers x 3 wide x (25 + 1).
    assert operations(model, [5, 1]) == 144 + 624
