"""Scores what many searches ask of one reranker, in merged calls of a bounded size."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from corag_ray.memo import Memo
from corag_ray.models.protocols import Reranker
from corag_ray.scoring import Heard, ScoringContext, score_pairs
from corag_ray.serving.batcher import Batched, Batcher
from corag_ray.serving.calls import all_of
from corag_ray.serving.scorer_meter import ScorerMeter
from corag_ray.types import Combination, Score

NewContext = Callable[[], ScoringContext]
"""A query's context, made in the computing thread, where a query that is not prepared yet is prepared."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of combinations in their order, rounded as `scoring` rounds, and for how many the reranker was called.

    `by` is the replica that scored them; `both` has both values of each, where they were asked for.
    """

    values: list[float | None]
    computed: int
    by: str = ""
    both: list[Score | None] = field(default_factory=list)


def joined(parts: Sequence[Scored]) -> Scored:
    """The scores of an ask's parts, one after another."""
    values = [value for part in parts for value in part.values]
    both = [score for part in parts for score in part.both]
    return Scored(values, sum(part.computed for part in parts), both=both)


@dataclass(frozen=True, slots=True)
class _Ask:
    context: NewContext
    combinations: list[Combination]
    both: bool


class MergedScorer:
    """One reranker and its memo behind a batcher: the same call as the batch pipeline's, over whatever waits."""

    def __init__(
        self,
        name: str,
        reranker: Reranker[Any],
        memo: Memo,
        thread: Executor,
        *,
        batch_pairs: int,
        most_waiting_pairs: int,
    ) -> None:
        """`batch_pairs` bounds the pairs of a call, and so the time until the next deadline is looked at."""
        self._rerankers = {name: reranker}
        self._meter = ScorerMeter(name, reranker, memo)
        self._memo = memo
        self._batch_pairs = batch_pairs
        self._batcher: Batcher[_Ask, Scored] = Batcher(
            *(self._compute, thread), most=batch_pairs, most_waiting=most_waiting_pairs, name=f"{name}_pairs"
        )

    async def score(
        self, context: NewContext, combinations: Sequence[Combination], deadline_s: float, both: bool = False
    ) -> Scored:
        """The combinations' scores; what exceeds a batch goes in several.

        Raises:
            OverloadedError: too many pairs are waiting.
            DeadlineError: the deadline came first.
        """
        starts = range(0, len(combinations), self._batch_pairs)
        asks = [_Ask(context, list(combinations[start : start + self._batch_pairs]), both) for start in starts]
        submit = self._batcher.submit
        return joined(await all_of(submit(ask, weight=len(ask.combinations), deadline_s=deadline_s) for ask in asks))

    @property
    def done(self) -> Batched:
        """Batches and pairs so far."""
        return self._batcher.done

    def check(self) -> None:
        """See `Batcher.check`."""
        self._batcher.check()

    def _compute(self, asks: list[_Ask]) -> list[Scored]:
        contexts = [ask.context() for ask in asks]
        pairs = [(number, combination) for number, ask in enumerate(asks) for combination in ask.combinations]
        computed: Counter[int] = Counter()
        heard: Heard | None = defaultdict(dict) if any(ask.both for ask in asks) else None
        values = iter(score_pairs(self._rerankers, contexts, pairs, None, self._memo, computed, None, heard))
        scored = []
        for number, ask in enumerate(asks):
            both = [heard[number][combination] for combination in ask.combinations] if heard and ask.both else []
            scored.append(Scored([next(values) for _ in ask.combinations], computed[number], both=both))
        self._meter.note(len(pairs), computed.total())
        return scored
