"""Any sequence-classification cross-encoder in a folder, loaded and run by FlagEmbedding."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from corag_ray.errors import ConfigError, MissingModelError
from corag_ray.models.calibration import Calibration, sigmoid
from corag_ray.models.protocols import TokenIds
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk, Combination, Score

PreparedTexts = tuple[str, tuple[str, ...]]
"""A query and its candidates' texts."""

PAIRS_A_BATCH = 32


class CrossEncoder:
    """The logit of a cross-encoder that reads the query and the combination's texts, joined by blanks, together.

    Order matters, and more chunks can lower the score. `raw` is the logit, `calibrated` its sigmoid where no
    calibration is given. A combination that exceeds `max_tokens` together with the query scores NaN: it is not cut, it
    cannot be valued.
    """

    order_sensitive = True
    monotone = False
    memoised = True
    template_version = 1

    def __init__(
        self,
        folder: Path,
        name: str,
        max_tokens: int,
        compute: Compute,
        calibration: Calibration | None = None,
        stored: TokenIds | None = None,
    ) -> None:
        """Load the checkpoint; `stored` gives the chunks' ids kept at indexing.

        Raises:
            MissingModelError: FlagEmbedding is not installed.
            ConfigError: the folder holds no cross-encoder with one output, or one that cannot read `max_tokens`.
        """
        compute.apply()
        try:
            from FlagEmbedding import FlagReranker
        except ModuleNotFoundError as error:
            raise MissingModelError(
                "a cross-encoder needs FlagEmbedding: pip install 'corag_ray[rerankers]'."
            ) from error
        try:
            self._model = FlagReranker(
                str(folder),
                use_fp16=False,
                devices="cpu",  # one by name: by default every visible one gets a process of its own
                batch_size=PAIRS_A_BATCH,
                query_max_length=max_tokens,  # by default three quarters of the window, and the rest is dropped
                max_length=max_tokens,
            )
        except (OSError, ValueError) as error:
            first_line = str(error).partition("\n")[0]
            raise ConfigError(
                f"'{name}': {folder} holds no cross-encoder that transformers can load: {first_line}"
            ) from error
        if self._model.model.config.num_labels != 1:
            raise ConfigError(
                f"'{name}': the model in {folder} has {self._model.model.config.num_labels} outputs; "
                "a cross-encoder for reranking has one."
            )
        positions = _positions(self._model.model)
        if positions is not None and max_tokens > positions:
            raise ConfigError(
                f"'{name}': the model in {folder} reads at most {positions} tokens, "
                f"so max_tokens cannot be {max_tokens}."
            )
        self._model.model.to(getattr(torch, compute.dtype))
        self._max_tokens = max_tokens
        self._stored = stored
        self._lock = threading.Lock()  # its tokenizer is not re-entrant
        self.name = name
        self._calibrated = calibration.calibrated if calibration else sigmoid

    def prepare(self, query: str, candidates: Sequence[Chunk], rows: Sequence[int]) -> PreparedTexts:
        """Texts alone: everything is computed for each combination anew."""
        return query, tuple(chunk.text for chunk in candidates)

    def score(self, pairs: Sequence[tuple[PreparedTexts, Combination]]) -> list[Score]:
        """One score a pair, in order."""
        raw = [math.nan] * len(pairs)
        texts = [[query, " ".join(chunks[n] for n in combination)] for (query, chunks), combination in pairs]
        with self._lock, torch.inference_mode():
            fitting = self._fitting(texts)
            if fitting:  # FlagEmbedding fails on an empty list
                for i, logit in zip(fitting, self._logits([texts[i] for i in fitting]), strict=True):
                    raw[i] = logit
        return [Score(value, self._calibrated(value)) for value in raw]

    def calibrated(self, raw: float) -> float:
        """What `score` gives as the calibrated value beside this raw one; NaN stays NaN."""
        return self._calibrated(raw)

    def _fitting(self, texts: Sequence[list[str]]) -> list[int]:
        """The numbers of the pairs that the window holds whole, special tokens included."""
        if not texts:
            return []
        encoded = self._model.tokenizer([query for query, _ in texts], [text for _, text in texts])["input_ids"]
        return [i for i, ids in enumerate(encoded) if len(ids) <= self._max_tokens]

    def _logits(self, texts: list[list[str]]) -> list[float]:
        found = self._model.compute_score(texts)
        return [float(logit) for logit in (found if isinstance(found, list) else [found])]


def _positions(model: torch.nn.Module) -> int | None:
    """How many tokens a model with learned positions can read; None where positions are computed, without a bound.

    RoBERTa and its kin begin to count after the number of the padding token, 1 as a rule: they read two fewer.
    """
    for name, table in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(table, torch.nn.Embedding):
            return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    return None
