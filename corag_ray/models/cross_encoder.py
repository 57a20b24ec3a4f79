"""A cross-encoder: one logit for a query and a combination's chunks, read together from their token ids."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from corag_ray.models.batches import Padding
from corag_ray.models.calibration import Calibration, sigmoid
from corag_ray.models.cross_encoder_loading import load_checkpoint
from corag_ray.models.first_token import compute_first_token_alone
from corag_ray.models.float32_head import compute_in
from corag_ray.models.onnx_logits import int8_forward
from corag_ray.models.pair_inputs import TEMPLATE_VERSION, ChunkIds, PairInput, PairInputs, Pooling
from corag_ray.models.pair_logits import BATCH_POSITIONS, PairLogits, torch_forward
from corag_ray.models.protocols import IdArray, StoredIds
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk, Combination, Score

PROBE = ("How high is the tower?", "It is 330 metres high.")
"""What every model reads once at load: a query and a chunk."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPair:
    """A query's token ids as they are read, those of each candidate, and how many the query has in full."""

    query: IdArray
    chunks: tuple[ChunkIds, ...]
    query_tokens: int


class CrossEncoder:
    """The logit of a cross-encoder that reads the query and the combination's chunks, in their order, together.

    Order matters, and more chunks can lower the score. `raw` is the logit, `calibrated` its sigmoid where no
    calibration is given. What exceeds the window goes in several (`PairInputs`), and `raw` is what `pooling` makes of
    their logits. NaN where the model failed on an input or gave no finite number.
    """

    order_sensitive = True
    monotone = False
    memoised = True
    template_version = TEMPLATE_VERSION

    def __init__(
        self,
        folder: Path,
        name: str,
        max_tokens: int,
        compute: Compute,
        calibration: Calibration | None = None,
        remote_code: bool = False,
        stored: StoredIds | None = None,
        pooling: Pooling = Pooling.SOFT_MAXIMUM,
        int8: str | None = None,
    ) -> None:
        """Load the checkpoint; `max_tokens` is its window, special tokens included.

        Chunks that `stored` has by this checkpoint's very tokenizer are not tokenised but looked up by their rows.
        `remote_code` lets the model run the folder's own code. With `int8`, which is the hash of the folder's files,
        ONNX Runtime computes in int8, each input alone, whatever the number type of `compute`.

        Raises:
            MissingModelError: FlagEmbedding is not installed, or what `int8_forward` misses.
            ConfigError: what `load_checkpoint` and `int8_forward` refuse, or a model that gives no number for two short
                texts.
        """
        compute = compute if int8 is None else replace(compute, dtype="float32")
        checkpoint = load_checkpoint(folder, name, max_tokens, compute, remote_code)
        tokenizer = checkpoint.tokenizer
        self._inputs = PairInputs(tokenizer, max_tokens)
        shape = getattr(checkpoint.model, "config", None)
        typed = getattr(shape, "type_vocab_size", 0) > 1 and "token_type_ids" in tokenizer.model_input_names
        pads = (getattr(shape, "pad_token_id", None), tokenizer.pad_token_id, 0)  # the model looks for its own
        pad_id = next(pad for pad in pads if pad is not None)
        self._logits = PairLogits(torch_forward(checkpoint.model), name, self._inputs, pad_id, typed)
        probe = self._probe()
        if not remote_code:  # which may change what a class of transformers computes
            compute_first_token_alone(checkpoint.model, lambda: self._logits.check(probe))  # while it is in float32
        compute_in(checkpoint.model, compute.dtype)
        self._logits.check(probe)
        if int8 is not None:
            arguments = ("input_ids", "attention_mask", "token_type_ids")[: 3 if typed else 2]
            forward = int8_forward(checkpoint.model, name, arguments, int8, compute.threads)
            self._logits = PairLogits(forward, name, self._inputs, pad_id, typed)
            self._logits.check(probe)
        self._batch_positions = 1 if compute.deterministic or int8 is not None else BATCH_POSITIONS
        self._stored = None if stored is None else self._inputs.stored_ids(stored)
        self._pooling = pooling
        # Two forward passes at once take longer than two, and torch keeps memory and threads for each thread that asks.
        self._reader = ThreadPoolExecutor(max_workers=1)
        self.calibrated = calibration.calibrated if calibration else sigmoid
        self.name = name

    @property
    def padding(self) -> Padding:
        """The positions of all forward passes so far, and how many of them held a token."""
        return self._logits.padding

    @property
    def padding_share(self) -> float:
        """The share of all positions computed so far that held no token, in 0..1."""
        return self.padding.share

    def prepare(self, query: str, candidates: Sequence[Chunk], rows: Sequence[int] | None) -> PreparedPair:
        """Token ids, once a query; a query keeps the half of the window that it may fill, for every combination."""
        [ids] = self._inputs.ids([query])
        longest = self._inputs.longest_query
        if len(ids) > longest:
            _log.warning("'%s': a question of %d tokens is cut to %d, half the window", self.name, len(ids), longest)
        if self._stored is None or rows is None:
            found = self._inputs.chunk_ids([chunk.text for chunk in candidates])
        else:
            found = self._stored(rows)
        return PreparedPair(ids[:longest], tuple(found), len(ids))

    def score(self, pairs: Sequence[tuple[PreparedPair, Combination]]) -> list[Score]:
        """One score a pair, in order; inputs that pairs share, windows included, are computed once.

        Raises:
            MemoryLimitError: the memory does not hold half a batch.
            ConfigError: the model failed on each of several inputs.
        """
        raw = [self._pooling.pooled(own) for own in self.window_logits(pairs)]
        return [Score(value, self.calibrated(value)) for value in raw]

    def window_logits(self, pairs: Sequence[tuple[PreparedPair, Combination]]) -> list[list[float]]:
        """What `score` pools: the logits of each pair's windows, in the windows' order.

        Raises:
            MemoryLimitError: the memory does not hold half a batch.
        """
        windows = self._windows(pairs)
        distinct = {item.key: item for own in windows for item in own}
        found = self._reader.submit(self._logits.of, [*distinct.values()], self._batch_positions).result()
        logits = dict(zip(distinct, found, strict=True))
        return [[logits[item.key] for item in own] for own in windows]

    def windows(self, pairs: Sequence[tuple[PreparedPair, Combination]]) -> list[int]:
        """In how many windows each pair is read, at least 1, in order."""
        return list(map(len, self._windows(pairs)))

    def room_beside(self, prepared: PreparedPair) -> int:
        """How many tokens of a document a window holds beside this query."""
        return self._inputs.room - len(prepared.query)

    def query_tokens(self, prepared: PreparedPair) -> tuple[int, int]:
        """How many tokens the query has, and how many of them are read: at most half of the window."""
        return prepared.query_tokens, len(prepared.query)

    def _windows(self, pairs: Sequence[tuple[PreparedPair, Combination]]) -> list[list[PairInput]]:
        return [self._inputs.windows(p.query, [p.chunks[n] for n in combination]) for p, combination in pairs]

    def _probe(self) -> PairInput:
        query, text = PROBE
        [ids] = self._inputs.ids([query])
        return self._inputs.windows(ids[: self._inputs.longest_query], self._inputs.chunk_ids([text]))[0]
