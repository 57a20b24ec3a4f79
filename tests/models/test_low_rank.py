"""Differences of models at low rank, against matrices whose rank is known."""

import pytest
import torch

from corag_ray.models.low_rank import difference, merged, share_told

torch.manual_seed(0)
BASE = {"w": torch.randn(12, 8), "b": torch.randn(12), "same": torch.randn(5, 5)}
FACTORS = torch.randn(12, 3), torch.randn(3, 8)
TRAINED = BASE | {"w": BASE["w"] + FACTORS[0] @ FACTORS[1], "b": BASE["b"] + 1, "head": torch.randn(1, 12)}


def test_a_difference_of_the_rank_is_told_to_the_precision_of_its_factors():
    result = merged(BASE, difference(BASE, TRAINED, 3))
    assert set(result) == set(TRAINED)
    assert torch.allclose(result["w"], TRAINED["w"], atol=0.08)
    assert all(torch.equal(result[name], TRAINED[name]) for name in ("b", "same", "head"))


def test_of_a_difference_above_the_rank_the_strongest_directions_are_told():
    direction = torch.zeros(12, 8)
    direction[0, 0], direction[1, 1] = 4.0, 2.0
    trained = {"w": BASE["w"] + direction}
    told = difference({"w": BASE["w"]}, trained, 1)
    kept = merged({"w": BASE["w"]}, told)["w"] - BASE["w"]
    expected = torch.zeros(12, 8)
    expected[0, 0] = 4.0
    assert torch.allclose(kept, expected, atol=1e-3)
    assert share_told({"w": BASE["w"]}, trained, told) == pytest.approx(16 / 20, abs=1e-3)


def test_what_is_equal_is_left_out_and_factors_are_small():
    told = difference(BASE, TRAINED, 3)
    assert set(told) == {"w.left", "w.right", "b", "head"}
    assert (told["w.left"].shape, told["w.right"].shape) == ((12, 3), (3, 8))
    assert {told[name].dtype for name in ("w.left", "w.right")} == {torch.bfloat16}
    assert difference(BASE, BASE, 3) == {} and share_told(BASE, BASE, {}) == 1.0


def test_a_matrix_no_larger_than_the_rank_and_one_of_another_shape_are_told_whole():
    assert torch.equal(difference({"w": BASE["w"]}, {"w": TRAINED["w"]}, 8)["w"], TRAINED["w"])
    larger = torch.randn(13, 8)
    assert torch.equal(merged({"w": BASE["w"]}, difference({"w": BASE["w"]}, {"w": larger}, 3))["w"], larger)


def test_a_difference_of_another_model_is_refused():
    with pytest.raises(KeyError):
        merged({"other": BASE["w"]}, difference(BASE, TRAINED, 3))
