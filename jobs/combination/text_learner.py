"""A cross-encoder over the text that learns to score combinations: the other architecture of the contest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corag_ray.config import WINDOW_TOKENS
from corag_ray.models.batches import length_batches, padded
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.pair_inputs import PairInput, PairInputs
from corag_ray.models.pair_logits import BATCH_POSITIONS
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Combination
from jobs.combination.checkpoint import Example, Recipe
from jobs.combination.examples import Asked
from jobs.combination.lessons import few
from jobs.combination.loss import evidence_loss
from jobs.combination.training import batches

COMBINATIONS = 6
"""Of a question in a step: of the 22 or so that a set head learns from, as many as labels are made for."""
FROZEN_LAYERS = 2
"""The lowest ones; with the vocabulary, they save a quarter of the time (`jobs.train_reranker`)."""


class ByText:
    """A cross-encoder that reads query and chunks as `CrossEncoder` scores them, and evidence that says what is better.

    A combination that exceeds the window is read in several, whose logits are pooled by the soft maximum.
    """

    def __init__(
        self,
        folder: Path,
        examples: Sequence[Example],
        recipe: Recipe,
        window_tokens: int = WINDOW_TOKENS,
        frozen_layers: int = FROZEN_LAYERS,
    ) -> None:
        """From a folder of MiniLM or of a model of its kind; a missing head is drawn by the recipe's seed.

        The recipe's batch is in questions.
        """
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        torch.manual_seed(recipe.seed)
        self._model = AutoModelForSequenceClassification.from_pretrained(
            str(folder), num_labels=1, dtype=torch.float32, local_files_only=True
        )
        for module in [self._model.base_model.embeddings, *self._model.base_model.encoder.layer[:frozen_layers]]:
            module.requires_grad_(False)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        self._inputs = PairInputs(self._tokenizer, window_tokens)
        self._window_tokens = window_tokens
        types = getattr(self._model.config, "type_vocab_size", 0)
        self._typed = types > 1 and "token_type_ids" in self._tokenizer.model_input_names
        self._examples, self._recipe = examples, recipe

    @property
    def model(self) -> nn.Module:
        """The model of transformers."""
        trained: nn.Module = self._model
        return trained

    @property
    def steps_a_pass(self) -> int:
        """Steps that take every question once."""
        return math.ceil(len(self._examples) / self._recipe.batch)

    def loss(self, step: int) -> Tensor:
        """Of the questions whose turn it is, each with a few of its pass's combinations."""
        epoch, place = divmod(step, self.steps_a_pass)
        numbers = batches(self._examples, self._recipe, epoch)[place]
        asked = [self._examples[number].asked for number in numbers]
        chosen = [few(one, self._recipe.seed, epoch, COMBINATIONS) for one in asked]
        return evidence_loss(self.logits(asked, chosen), asked, chosen, self._recipe.anchor)

    def logits(self, asked: Sequence[Asked], chosen: Sequence[Sequence[Combination]]) -> Tensor:
        """[questions, most combinations] of each question's combinations; 0 behind those that have fewer."""
        windows = [self._windows(one, combinations) for one, combinations in zip(asked, chosen, strict=True)]
        read = self._read([item for of_question in windows for own in of_question for item in own])
        logits = read.new_zeros((len(chosen), max(map(len, chosen))))
        ends = np.cumsum([len(own) for of_question in windows for own in of_question]).tolist()
        places = [(q, p) for q, of_question in enumerate(windows) for p in range(len(of_question))]
        pooled = [soft_maximum(read[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
        owners, columns = torch.tensor(places).T
        return logits.index_put((owners, columns), torch.stack(pooled))

    def reranker(self, folder: Path, name: str, compute: Compute) -> CrossEncoder:
        """The model as users have it: saved to the folder, over what stands there, and loaded."""
        self._model.save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)
        return CrossEncoder(folder, name, self._window_tokens, compute)

    def _windows(self, asked: Asked, combinations: Sequence[Combination]) -> list[list[PairInput]]:
        [query] = self._inputs.ids([asked.text])
        query = query[: self._inputs.longest_query]
        chunks = self._inputs.chunk_ids([chunk.text for chunk in asked.chunks])
        return [self._inputs.windows(query, [chunks[number] for number in chosen]) for chosen in combinations]

    def _read(self, items: Sequence[PairInput]) -> Tensor:
        """One logit an input, in order, computed in batches of like length."""
        order: list[int] = []
        logits: list[Tensor] = []
        for numbers in length_batches([len(item.ids) for item in items], BATCH_POSITIONS):
            order += numbers
            logits.append(self._model(**self._arguments([items[number] for number in numbers])).logits[:, 0])
        return torch.cat(logits)[torch.tensor(np.argsort(order))]

    def _arguments(self, items: Sequence[PairInput]) -> dict[str, Tensor]:
        ids, mask = padded([item.ids for item in items], self._tokenizer.pad_token_id)
        arguments = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if self._typed:
            arguments["token_type_ids"] = torch.from_numpy(padded([self._inputs.types(item) for item in items])[0])
        return arguments


def soft_maximum(logits: Tensor) -> Tensor:
    """`Pooling.SOFT_MAXIMUM` of the logits [windows] of a combination, to be differentiated."""
    return logits.logsumexp(0) - math.log(len(logits))
