"""Query likelihood by a language model (Sachan et al., UPR, EMNLP 2022): how well the context predicts the question."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from corag_ray.models.calibration import Calibration
from corag_ray.models.causal_model import load_causal_model
from corag_ray.models.prefix_forward import MIN_SHARED, read, tail_log_probability
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk, Combination, Score

HEAD = "Passage:"
INSTRUCTION = "\nPlease write a question based on this passage.\nQuestion:"
"""The published template, with line ends; the question follows and is what the likelihood is taken of."""


@dataclass(frozen=True, slots=True)
class PreparedLikelihood:
    """Token ids: of each candidate (a line of the passage), and of the question."""

    chunks: tuple[tuple[int, ...], ...]
    question: tuple[int, ...]


class QueryLikelihood:
    """The mean log probability of the question's tokens after the combination's chunks, in their order.

    `raw` is in nats a token, at most 0; `calibrated` is the probability, exp(raw), where no calibration is given. Order
    matters, and more chunks can lower the score. What the combinations of a query share at their beginning is computed
    once inside a call, but for the deterministic mode, where each is read alone. A combination that does not fit the
    model's window together with the question scores NaN: it cannot be valued.
    """

    name = "query_likelihood"
    order_sensitive = True
    monotone = False
    memoised = True
    template_version = 1

    def __init__(
        self, folder: Path, compute: Compute, min_shared: int = MIN_SHARED, calibration: Calibration | None = None
    ) -> None:
        """Load a causal language model from a transformers folder.

        `min_shared` is the number of tokens from which on a common beginning is computed once.
        """
        self._min_shared, self._alone = min_shared, compute.deterministic
        self._calibrated = calibration.calibrated if calibration else math.exp
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.encode_special_tokens = True  # that is, as text: what a passage says is no control token
        self._model = load_causal_model(folder, compute)
        self._window = int(self._model.config.max_position_embeddings)
        self.head, self._instruction = self._ids(HEAD), self._ids(INSTRUCTION)
        self.tokens_asked = self.tokens_computed = 0
        """Tokens of all combinations scored so far, and how many of them went through the model."""

    def prepare(self, query: str, candidates: Sequence[Chunk], rows: Sequence[int] | None) -> PreparedLikelihood:
        """Tokenise the question and the candidates; a blank question has one token, the blank."""
        return PreparedLikelihood(tuple(self._ids(f"\n{chunk.text}") for chunk in candidates), self._ids(f" {query}"))

    def score(self, pairs: Sequence[tuple[PreparedLikelihood, Combination]]) -> list[Score]:
        """One score a pair, in order; the empty combination's is the question's likelihood without a passage."""
        raw = [math.nan] * len(pairs)
        queries: dict[int, list[int]] = defaultdict(list)
        for i, (prepared, _) in enumerate(pairs):
            queries[id(prepared)].append(i)
        for members in queries.values():
            prepared = pairs[members[0]][0]
            sequences = {i: self.sequence(prepared, pairs[i][1]) for i in members}
            fitting = [i for i in members if len(sequences[i]) <= self._window]
            found = self._log_likelihoods([sequences[i] for i in fitting], prepared.question)
            for i, value in zip(fitting, found, strict=True):
                raw[i] = value
        return [Score(value, self._calibrated(value)) for value in raw]

    def calibrated(self, raw: float) -> float:
        """What `score` gives as the calibrated value beside this raw one; NaN stays NaN."""
        return self._calibrated(raw)

    def sequence(self, prepared: PreparedLikelihood, combination: Combination) -> list[int]:
        """The token ids that are read for a combination: head, chunks, instruction, question."""
        context = [token for number in combination for token in prepared.chunks[number]]
        return [*self.head, *context, *self._instruction, *prepared.question]

    def _log_likelihoods(self, sequences: Sequence[Sequence[int]], question: Sequence[int]) -> list[float]:
        """Mean log probability of the question's tokens at the end of each sequence."""
        if self._alone and len(sequences) > 1:
            return [value for sequence in sequences for value in self._log_likelihoods([sequence], question)]
        reading = read(self._model, sequences, keep=False, min_shared=self._min_shared)
        self.tokens_asked += sum(map(len, sequences))
        self.tokens_computed += reading.tokens
        return [tail_log_probability(self._model, reading, i, question) for i in range(len(sequences))]

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
