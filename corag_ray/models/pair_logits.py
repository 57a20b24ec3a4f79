"""The forward passes of a cross-encoder: padded batches, longest first, assembled while the one before computes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corag_ray.errors import ConfigError, MemoryLimitError
from corag_ray.models.batches import Padding, length_batches, one_ahead, padded
from corag_ray.models.pair_inputs import PairInput, PairInputs

BATCH_POSITIONS = 1024
"""Padded positions a forward pass, at most (one input may exceed it alone).

Measured with MiniLM's shape in float32, combinations of one to three chunks of 64 to 125 tokens, one thread: 1,080 to
1,100 tokens a second of processor time with one input a batch, 512 and 1,024 positions; 960 with 2,048, 810 with 4,096,
where few inputs of unlike length leave more padding.
"""

MEMORY_WORDS = ("out of memory", "can't allocate memory", "failed to allocate memory", "bad_alloc", "bad allocation")
"""How torch and ONNX Runtime, in any case of letters, say that memory is out where no error of its own does."""

Forward = Callable[[Mapping[str, torch.Tensor]], list[float]]
"""One forward pass: a batch's padded ids, mask and, if the model is told them, token types; one logit an input."""

_log = logging.getLogger(__name__)


def torch_forward(model: torch.nn.Module) -> Forward:
    """The forward pass of a model of transformers with one output."""

    def forward(arguments: Mapping[str, torch.Tensor]) -> list[float]:
        with torch.inference_mode():
            logits: Any = model(**arguments).logits
        return [float(logit) for logit in logits[:, 0].float().tolist()]

    return forward


@dataclass(frozen=True, slots=True)
class _Batch:
    """Inputs by number, and what the model is called with."""

    numbers: list[int]
    arguments: dict[str, torch.Tensor]


class PairLogits:
    """One logit an input, in order; NaN where the model gave none or failed on that input.

    `padding` counts the positions computed so far. `typed` says that the model is told token types.
    """

    def __init__(self, forward: Forward, name: str, inputs: PairInputs, pad_id: int, typed: bool) -> None:
        """`pad_id` fills the shorter inputs: RoBERTa and its kin number positions by it."""
        self._forward, self._name, self._inputs = forward, name, inputs
        self._pad_id, self._typed = pad_id, typed
        self.padding = Padding()

    def of(self, items: Sequence[PairInput], batch_positions: int) -> list[float]:
        """The logits of inputs in batches of at most `batch_positions` padded positions; with 1, each goes alone.

        A batch that fails is read again input by input, so that a bad one fails alone; how many did, and the first
        reason, goes to the log once a call.

        Raises:
            MemoryLimitError: a batch does not fit the memory, nor does half of it.
            ConfigError: each of several inputs failed: it is not they that are bad.
        """
        logits = [math.nan] * len(items)
        failures: list[Exception] = []
        numbers = length_batches([len(item.ids) for item in items], batch_positions)
        for batch in one_ahead(lambda numbers: self._assembled(items, numbers), numbers):
            for number, logit in zip(batch.numbers, self._read(items, batch, failures), strict=True):
                logits[number] = logit if math.isfinite(logit) else math.nan
        if failures:
            first = _one_line(failures[0])
            if 1 < len(items) == len(failures):
                raise ConfigError(f"'{self._name}': the model failed on all of {len(items)} inputs, first by {first}")
            _log.warning(
                "'%s' failed on %d of %d inputs, the first by %s", self._name, len(failures), len(items), first
            )
        return logits

    def check(self, item: PairInput) -> float:
        """One input's logit, finite: asked for at load, to see that the model computes at all; not counted.

        Raises:
            ConfigError: it does not.
        """
        try:
            [logit] = self._forward(self._assembled([item], [0]).arguments)
        except Exception as error:
            raise ConfigError(f"'{self._name}': the model fails on two short texts by {_one_line(error)}") from error
        if not math.isfinite(logit):
            raise ConfigError(f"'{self._name}': the model gives {logit} for two short texts, which is no score.")
        return logit

    def _assembled(self, items: Sequence[PairInput], numbers: list[int]) -> _Batch:
        chosen = [items[number] for number in numbers]
        ids, mask = padded([item.ids for item in chosen], self._pad_id)
        arguments = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if self._typed:
            arguments["token_type_ids"] = torch.from_numpy(padded([self._inputs.types(item) for item in chosen])[0])
        return _Batch(numbers, arguments)

    def _read(
        self, items: Sequence[PairInput], batch: _Batch, failures: list[Exception], halved: bool = False
    ) -> list[float]:
        """A batch's logits: in two halves where memory is out, once; input by input where it fails otherwise."""
        self.padding.count([len(items[number].ids) for number in batch.numbers])
        try:
            return self._forward(batch.arguments)
        except Exception as error:
            failure = error.with_traceback(None)  # whose frames hold what the batch took of the memory
        numbers = batch.numbers
        if _is_out_of_memory(failure):
            if halved or len(numbers) == 1:
                raise self._too_little(items, numbers) from failure
            _log.warning(
                "'%s': memory is out with a batch of %d inputs; reading it in halves", self._name, len(numbers)
            )
            middle, halved = len(numbers) // 2, True
            parts = [numbers[:middle], numbers[middle:]]
        elif len(numbers) == 1:
            failures.append(failure)
            return [math.nan]
        else:
            parts = [[number] for number in numbers]
        return [logit for part in parts for logit in self._read(items, self._assembled(items, part), failures, halved)]

    def _too_little(self, items: Sequence[PairInput], numbers: Sequence[int]) -> MemoryLimitError:
        longest = max(len(items[number].ids) for number in numbers)
        return MemoryLimitError(
            f"'{self._name}': memory is out with {len(numbers)} inputs of at most {longest} tokens at once: lower its "
            "max_tokens, or run fewer processes on this machine."
        )


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return any(words in str(error).lower() for words in MEMORY_WORDS)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
