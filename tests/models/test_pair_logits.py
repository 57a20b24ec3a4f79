"""Batches that go wrong, on a model that does so on purpose."""

import logging
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from corag_ray.errors import ConfigError, MemoryLimitError
from corag_ray.models.pair_inputs import PairInput
from corag_ray.models.pair_logits import PairLogits, torch_forward

BAD, NAN, INFINITE = 90, 91, 92
MEMORY = [
    torch.OutOfMemoryError("no"),
    RuntimeError("CUDA out of memory"),
    RuntimeError("x: can't allocate memory: y"),
    Exception("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer of size 8"),
]


class Sums(torch.nn.Module):
    """The logit is the sum of the ids; some ids give no number, one an error, and so does a batch too large."""

    def __init__(self, most=100, error=None):
        super().__init__()
        self.most, self.error, self.sizes = most, error, []

    def forward(self, input_ids, attention_mask):
        self.sizes.append(len(input_ids))
        if len(input_ids) > self.most:
            raise self.error
        if (input_ids == BAD).any():
            raise IndexError("index out of range")
        sums = (input_ids * attention_mask).sum(dim=1).float()
        sums[(input_ids == NAN).any(dim=1)], sums[(input_ids == INFINITE).any(dim=1)] = math.nan, math.inf
        return SimpleNamespace(logits=sums[:, None])


def made(model):
    return PairLogits(torch_forward(model), "mine", None, pad_id=1, typed=False)


def items(*ids):
    return [PairInput(np.array(own, dtype=np.int32), 1) for own in ids]


def test_logits_stand_in_the_order_of_the_inputs_and_padding_is_counted():
    logits = made(Sums())
    assert logits.of(items([2], [3, 4, 5], [6, 7]), 6) == [2, 12, 13]
    # [3, 4, 5] and [6, 7] fill six positions, one of them by padding; [2] goes alone.
    assert (logits.padding.positions, logits.padding.tokens) == (7, 6)
    assert logits.of([], 6) == []


def test_with_a_bound_of_one_each_input_goes_alone():
    model = Sums()
    made(model).of(items([2], [3], [4]), 1)
    assert model.sizes == [1, 1, 1]


def test_what_is_not_finite_is_nan_for_that_input_alone():
    found = made(Sums()).of(items([2], [NAN], [INFINITE], [3]), 100)
    assert found == pytest.approx([2, math.nan, math.nan, 3], nan_ok=True)


def test_a_batch_that_fails_is_read_one_by_one_so_that_a_bad_input_fails_alone_and_is_logged_once(caplog):
    model = Sums()
    with caplog.at_level(logging.WARNING):
        found = made(model).of(items([2], [BAD], [3], [BAD, BAD]), 100)
    assert found == pytest.approx([2, math.nan, 3, math.nan], nan_ok=True)
    assert model.sizes == [4, 1, 1, 1, 1]
    assert caplog.messages == ["'mine' failed on 2 of 4 inputs, the first by IndexError: index out of range"]


@pytest.mark.parametrize("error", MEMORY)
def test_where_memory_is_out_the_batch_is_halved_once_and_that_is_said(error, caplog):
    model = Sums(most=2, error=error)
    with caplog.at_level(logging.WARNING):
        assert made(model).of(items([2], [3], [4]), 100) == [2, 3, 4]
    assert model.sizes == [3, 1, 2]
    assert caplog.messages == ["'mine': memory is out with a batch of 3 inputs; reading it in halves"]


@pytest.mark.parametrize("error", MEMORY)
def test_where_half_a_batch_or_one_input_exceeds_the_memory_it_is_an_error_of_ours(error):
    model = Sums(most=1, error=error)
    said = r"^'mine': memory is out with 2 inputs of at most 3 tokens at once: lower its max_tokens"
    with pytest.raises(MemoryLimitError, match=said):
        made(model).of(items([2, 3, 4], [3], [4], [5]), 100)
    assert model.sizes == [4, 2]
    with pytest.raises(MemoryLimitError, match="with 1 inputs"):
        made(Sums(most=0, error=error)).of(items([2]), 100)


def test_a_bad_input_in_a_halved_batch_fails_alone_too():
    found = made(Sums(most=2, error=MEMORY[0])).of(items([2], [BAD], [3], [4]), 100)
    assert found == pytest.approx([2, math.nan, 3, 4], nan_ok=True)


def test_where_each_of_several_inputs_fails_the_model_is_dead_and_one_that_fails_alone_has_no_score():
    said = r"^'mine': the model failed on all of 2 inputs, first by IndexError: index out of range$"
    with pytest.raises(ConfigError, match=said):
        made(Sums()).of(items([BAD], [BAD, 2]), 100)
    assert math.isnan(made(Sums()).of(items([BAD]), 100)[0])
    found = made(Sums()).of(items([BAD], [NAN]), 100)  # no number is no failure
    assert all(map(math.isnan, found))


def test_one_input_is_checked_without_being_counted():
    logits = made(Sums())
    assert logits.check(*items([2, 3])) == 5
    assert (logits.padding.positions, logits.padding.tokens) == (0, 0)
    with pytest.raises(ConfigError, match=r"^'mine': the model fails on two short texts by IndexError: index out of"):
        logits.check(*items([BAD]))
    with pytest.raises(ConfigError, match=r"^'mine': the model gives nan for two short texts, which is no score\.$"):
        logits.check(*items([NAN]))
