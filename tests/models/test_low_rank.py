"""Differences of models within a number of bytes, against matrices whose singular values are known."""

import pytest
import torch
from safetensors.torch import save

from corag_ray.models.low_rank import FILE_BYTES, HEADER_BYTES, difference, merged, share_told

torch.manual_seed(0)
BASE = {"w": torch.randn(12, 8), "b": torch.randn(12), "same": torch.randn(5, 5), "places": torch.arange(4)[None]}
FACTORS = torch.randn(12, 3), torch.randn(3, 8)
TRAINED = BASE | {"w": BASE["w"] + FACTORS[0] @ FACTORS[1], "b": BASE["b"] + 1, "head": torch.randn(1, 12)}


def diagonal(rows, columns, *values):
    matrix = torch.zeros(rows, columns)
    for place, value in enumerate(values):
        matrix[place, place] = value
    return matrix


def test_a_difference_of_low_rank_is_told_to_the_precision_of_its_numbers():
    told = difference(BASE, TRAINED, 2000)
    assert {name: tuple(tensor.shape) for name, tensor in told.items()} == {
        "w.left": (12, 3),
        "w.right": (3, 8),
        "b.added": (12,),
        "head": (1, 12),
    }
    result = merged(BASE, told)
    assert set(result) == set(TRAINED)
    assert torch.allclose(result["w"], TRAINED["w"], atol=0.01)
    assert torch.allclose(result["b"], TRAINED["b"], atol=1e-3)
    assert torch.equal(result["head"], TRAINED["head"]) and torch.equal(result["same"], TRAINED["same"])
    assert share_told(BASE, TRAINED, told) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("room", "ranks"), [(15, (0, 0)), (16, (1, 0)), (47, (2, 0)), (48, (1, 1)), (64, (2, 1))])
def test_the_directions_that_tell_most_a_byte_come_first(room, ranks):
    # A direction of the 4 x 4 matrix takes 2 * 8 bytes, so 9 / 16 and 1 / 16; of the 4 x 12 matrix 2 * 16: 16 / 32.
    base = {"a": torch.zeros(4, 4), "b": torch.zeros(4, 12)}
    trained = {"a": diagonal(4, 4, 3.0, 1.0), "b": diagonal(4, 12, 4.0)}
    told = difference(base, trained, FILE_BYTES + 4 * (1 + HEADER_BYTES) + room)
    assert tuple(told[f"{name}.left"].shape[1] if f"{name}.left" in told else 0 for name in "ab") == ranks
    expected = {"a": diagonal(4, 4, *(3.0, 1.0)[: ranks[0]]), "b": diagonal(4, 12, *(4.0,)[: ranks[1]])}
    result = merged(base, told)
    assert all(torch.allclose(result[name], expected[name], atol=5e-3) for name in expected)
    shares = {(0, 0): 0, (1, 0): 9 / 26, (2, 0): 10 / 26, (1, 1): 25 / 26, (2, 1): 1}
    assert share_told(base, trained, told) == pytest.approx(shares[ranks], abs=1e-3)


@pytest.mark.parametrize("limit", [2000, 5000, 20_000, 60_000])
def test_the_file_is_never_above_the_limit_and_fills_it_where_there_is_more_to_tell(limit):
    names = [f"encoder.layer.{number}.a_matrix.weight" for number in range(3)]
    base = {name: torch.zeros(120, 70) for name in names}
    trained = {name: torch.randn(120, 70) for name in names}
    size = len(save(difference(base, trained, limit), metadata={"base": "a package 1.0"}))
    assert limit - 1300 < size <= limit


def test_what_begins_with_a_given_name_is_told_in_full_and_what_the_base_has_otherwise_as_it_is():
    base = {"head.w": torch.zeros(6, 6), "larger": torch.zeros(2, 2), "places": torch.arange(3)}
    trained = {"head.w": torch.randn(6, 6), "larger": torch.randn(3, 2), "places": torch.arange(3) + 1}
    told = difference(base, trained, 4000, whole=["head."])
    assert set(told) == {"head.w.added", "larger", "places"}
    result = merged(base, told)
    assert torch.allclose(result["head.w"], trained["head.w"], atol=2e-3)
    assert torch.equal(result["larger"], trained["larger"])
    assert torch.equal(result["places"], torch.tensor([1, 2, 3]))


def test_whole_numbers_stay_whole_and_half_precision_becomes_single():
    result = merged({"places": torch.arange(2**24, 2**24 + 3), "w": torch.ones(2, 2, dtype=torch.bfloat16)}, {})
    assert result["places"].tolist() == [2**24, 2**24 + 1, 2**24 + 2]  # float32 has no 2**24 + 1
    assert result["w"].dtype == torch.float32


def test_equal_models_have_nothing_to_tell():
    assert difference(BASE, dict(BASE), 2000) == {}
    assert share_told(BASE, BASE, {}) == 1.0


def test_a_limit_below_what_is_told_in_full_is_refused():
    with pytest.raises(ValueError, match=r"takes [\d,]+ bytes, above the limit of 300$"):
        difference(BASE, TRAINED, 300)


def test_a_difference_from_another_model_is_refused():
    with pytest.raises(KeyError):
        merged({"other": BASE["w"]}, difference(BASE, TRAINED, 2000))
    with pytest.raises(RuntimeError):
        merged(BASE | {"w": torch.zeros(5, 5)}, difference(BASE, TRAINED, 2000))
