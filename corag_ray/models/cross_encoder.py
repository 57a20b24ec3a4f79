"""Any sequence-classification cross-encoder in a folder, loaded and run by FlagEmbedding."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from corag_ray.errors import ConfigError, MissingModelError
from corag_ray.models.calibration import Calibration, sigmoid
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk, Combination, Score

PreparedTexts = tuple[str, tuple[str, ...]]
"""A query and its candidates' texts."""

PAIRS_A_BATCH = 32


class CrossEncoder:
    """The logit of a cross-encoder that reads the query and the combination's texts, joined by blanks, together.

    Order matters, and more chunks can lower the score. `raw` is the logit, `calibrated` its sigmoid where no
    calibration is given. A query with a combination longer than `max_tokens` is cut at the end by FlagEmbedding;
    `truncated` counts such pairs.
    """

    order_sensitive = True
    monotone = False

    def __init__(
        self, folder: Path, name: str, max_tokens: int, compute: Compute, calibration: Calibration | None = None
    ) -> None:
        """Load the checkpoint.

        Raises:
            MissingModelError: FlagEmbedding is not installed.
            ConfigError: the folder holds no cross-encoder with one output.
        """
        compute.apply()
        try:
            from FlagEmbedding import FlagReranker
        except ModuleNotFoundError as error:
            raise MissingModelError(
                "a cross-encoder needs FlagEmbedding: pip install 'corag_ray[rerankers]'."
            ) from error
        try:
            # One device by name: by default every visible one gets a process of its own.
            self._model = FlagReranker(
                str(folder), use_fp16=False, devices="cpu", batch_size=PAIRS_A_BATCH, max_length=max_tokens
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
        self._model.model.to(getattr(torch, compute.dtype))
        self._max_tokens = max_tokens
        self._lock = threading.Lock()  # its tokenizer is not re-entrant
        self.name = name
        self._calibrated = calibration.calibrated if calibration else sigmoid
        self.calibration_version = calibration.version if calibration else None
        self.truncated = 0

    def prepare(self, query: str, candidates: Sequence[Chunk], rows: Sequence[int]) -> PreparedTexts:
        """Texts alone: everything is computed for each combination anew."""
        return query, tuple(chunk.text for chunk in candidates)

    def score(self, pairs: Sequence[tuple[PreparedTexts, Combination]]) -> list[Score]:
        """One score a pair, in order."""
        if not pairs:
            return []  # FlagEmbedding fails on an empty list
        texts = [(query, " ".join(chunks[n] for n in combination)) for (query, chunks), combination in pairs]
        with self._lock, torch.inference_mode():
            encoded = self._model.tokenizer([q for q, _ in texts], [t for _, t in texts])["input_ids"]
            self.truncated += sum(len(ids) > self._max_tokens for ids in encoded)
            logits = self._model.compute_score([list(pair) for pair in texts])
        found = [float(logit) for logit in (logits if isinstance(logits, list) else [logits])]
        return [Score(logit, self._calibrated(logit)) for logit in found]
