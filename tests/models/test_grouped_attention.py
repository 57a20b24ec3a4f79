"""Attention for grouped key heads: equal to attention over keys copied once a query head."""

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from corag_ray.models import grouped_attention


class Layer(torch.nn.Module):
    """What transformers' attention reads of a layer."""

    num_key_value_groups = 3
    is_causal = True


def by_hand(query, key, value, mask, scaling):
    """softmax(q k' scaling) v, query head h reading key head h // 3."""
    key, value = key.repeat_interleave(3, dim=1), value.repeat_interleave(3, dim=1)
    weights = query @ key.transpose(-1, -2) * scaling
    if mask is not None:
        weights = weights.masked_fill(~mask, -torch.inf)
    return (weights.softmax(dim=-1) @ value).transpose(1, 2)


@pytest.mark.parametrize("new", [1, 4])
@pytest.mark.parametrize("masked", [True, False])
def test_each_query_head_attends_to_its_groups_keys(new, masked):
    torch.manual_seed(1)
    batch, heads, groups, past, dim = 2, 6, 2, 7, 8
    query = torch.randn(batch, heads, new, dim)
    key, value = torch.randn(batch, groups, past, dim), torch.randn(batch, groups, past, dim)
    mask = torch.ones(batch, 1, new, past, dtype=torch.bool)
    mask[1, :, :, :3] = False  # the second prompt is shorter: three padded positions
    if not masked:
        mask = None
        if new > 1:  # without a mask a prompt is causal over itself
            key, value, past = key[:, :, :new], value[:, :, :new], new
    attend = ALL_ATTENTION_FUNCTIONS[grouped_attention.register()]
    found, weights = attend(Layer(), query, key, value, mask, scaling=0.3, dropout=0.0)
    causal = torch.ones(new, new, dtype=torch.bool).tril() if not masked and new > 1 else mask
    assert weights is None
    assert found.is_contiguous()
    torch.testing.assert_close(found, by_hand(query, key, value, causal, 0.3), rtol=1e-5, atol=1e-5)
