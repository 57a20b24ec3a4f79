"""The last encoder layer of a cross-encoder for its first token alone: the head reads no other."""

from __future__ import annotations

from typing import Any

import torch

LAYERS = frozenset({"BertLayer", "RobertaLayer", "XLMRobertaLayer"})
"""Classes of transformers whose parts have the names that `FirstTokenLayer` uses, and whose heads read one token."""


def compute_first_token_alone(model: torch.nn.Module) -> bool:
    """Replace the last layer of a sequence-classification model in place, where it is of a class known here.

    Returns whether it was. Logits stay what they were but for rounding; of n layers, about 0.8 of one is saved.
    """
    encoder: Any = getattr(getattr(model, "base_model", None), "encoder", None)
    layers = getattr(encoder, "layer", None)
    if not layers or type(layers[-1]).__name__ not in LAYERS or layers[-1].is_decoder:
        return False
    layers[-1] = FirstTokenLayer(layers[-1])
    return True


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
