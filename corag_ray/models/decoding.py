"""Greedy decoding, one token after another, of sequences that a causal language model has read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import Cache, PreTrainedModel, StaticLayer

from corag_ray.models.prefix_forward import Reading


class GreedyDecoding:
    """The most likely next tokens of some sequences, which stay in step; between two steps nothing is under way."""

    def __init__(self, model: PreTrainedModel, reading: Reading, members: Sequence[int], max_new_tokens: int) -> None:
        """`members` are numbers of sequences of the reading; there are `max_new_tokens` steps at most."""
        past, mask = reading.past(members)
        self._model = model
        self._cache = Cache(layers=[StaticLayer(mask.shape[1] + max_new_tokens) for _ in past])
        with torch.inference_mode():
            for layer, (keys, values) in enumerate(past):
                self._cache.update(keys, values, layer)
            self._positions = mask.sum(dim=1)
            self._mask = torch.nn.functional.pad(mask, (0, max_new_tokens), value=1)
            self._states = torch.stack([reading.tail(i, 1)[0] for i in members])
        self._tokens: torch.Tensor | None = None

    def step(self) -> list[int]:
        """The next token of each sequence, in the members' order; the tokens of the step before are read first."""
        with torch.inference_mode():
            if self._tokens is not None:
                output = self._model.base_model(
                    input_ids=self._tokens[:, None],
                    attention_mask=self._mask,
                    position_ids=self._positions[:, None],
                    past_key_values=self._cache,
                )
                self._states = output.last_hidden_state[:, -1]
                self._positions = self._positions + 1
            self._tokens = self._model.get_output_embeddings()(self._states).argmax(dim=-1)
            tokens: list[int] = self._tokens.tolist()
            return tokens
