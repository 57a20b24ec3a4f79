"""The last encoder layer of a cross-encoder for its first token alone, where the head reads no other."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import torch

from corag_ray.errors import ConfigError

ATTENTION = frozenset({"sdpa", "eager"})
"""Kinds of attention whose masks are added to the weights, as `FirstTokenLayer` adds them."""

TOLERANCE = 1e-3
"""What the two ways to compute a logit may differ by: in float32 rounding makes less than 1e-5."""

_log = logging.getLogger(__name__)


def compute_first_token_alone(model: torch.nn.Module, logit: Callable[[], float]) -> bool:
    """Replace the last layer of a sequence-classification model in place, if its class is one of three known here.

    Of n layers about 0.8 of one is saved. `logit` computes some pair's logit with the model as it is at the call, best
    in float32; where the new layer changes it by more than `TOLERANCE`, the old one is put back and the log says so.

    Returns whether the layer was replaced.
    """
    if not _reads_one_token(model):
        return False
    layers: Any = model.base_model.encoder.layer  # type: ignore[union-attr]
    whole, expected = layers[-1], logit()
    layers[-1] = FirstTokenLayer(whole)
    try:
        difference = abs(logit() - expected)
    except ConfigError:  # another transformers' layer may have other parts
        difference = math.inf
    if difference <= TOLERANCE:
        return True
    layers[-1] = whole
    _log.warning(
        "%s: its last layer for the first token alone changes a logit by %.3g, so it is computed for all tokens",
        type(model).__name__,
        difference,
    )
    return False


def _reads_one_token(model: torch.nn.Module) -> bool:
    """By the class itself: the name says nothing of the head, and another's code may bear it."""
    from transformers import (
        BertForSequenceClassification,
        RobertaForSequenceClassification,
        XLMRobertaForSequenceClassification,
    )

    config: Any = getattr(model, "config", None)
    known = (BertForSequenceClassification, RobertaForSequenceClassification, XLMRobertaForSequenceClassification)
    return type(model) in known and config._attn_implementation in ATTENTION and not config.is_decoder


class FirstTokenLayer(torch.nn.Module):
    """An encoder layer that gives the first position's hidden state, [batch, 1, hidden], from all positions' states."""

    def __init__(self, layer: Any) -> None:
        """Of a layer whose weights are used as they are."""
        super().__init__()
        self._layer = layer

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, *_: Any, **__: Any
    ) -> torch.Tensor:
        """States are [batch, length, hidden]; the mask is [batch, 1, 1 or length, length], or None where all count."""
        own = self._layer.attention.self
        first = hidden_states[:, :1]
        queries, keys, values = (
            projected.unflatten(-1, (-1, own.attention_head_size)).transpose(1, 2)
            for projected in (own.query(first), own.key(hidden_states), own.value(hidden_states))
        )
        mask = None if attention_mask is None else attention_mask[:, :, :1]
        read = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, mask, scale=own.scaling)
        attended = self._layer.attention.output(read.transpose(1, 2).flatten(2), first)
        given: torch.Tensor = self._layer.feed_forward_chunk(attended)
        return given
