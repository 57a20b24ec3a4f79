"""From what strategies ask to reranker calls: merged by reranker, deduplicated, memoised, rounded, timed."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from corag_ray.core.strategy import Reading
from corag_ray.errors import ProtocolError
from corag_ray.memo import Memo, QueryKeys
from corag_ray.models.protocols import MemoisedReranker, Reranker
from corag_ray.types import Combination, Score

SCORE_DECIMALS = 3
"""Scores are rounded before a strategy sees them, so that the last bits of a sum decide nothing."""

_NO_SCORE = Score(math.nan, math.nan)

Pair = tuple[int, Combination]
"""A search by its number, and a combination that it asks to have scored."""
Heard = defaultdict[int, dict[Combination, Score | None]]
"""By search what it asked for, in its order, with both values as rounded as told; `None` where it was told so."""


@dataclass(frozen=True, slots=True)
class ScoringContext:
    """What a search needs to have its combinations scored: its reranker, the prepared query, the value it reads.

    `keys` are the query's in the memo; None where its reranker is not memoised.
    """

    reranker: str
    prepared: Any
    reading: Reading
    keys: QueryKeys | None = None


def score_pairs(
    rerankers: Mapping[str, Reranker[Any]],
    searches: Sequence[ScoringContext],
    pairs: Sequence[Pair],
    reranker_ms: defaultdict[str, float] | None = None,
    memo: Memo | None = None,
    computed: Counter[int] | None = None,
    unscored: Counter[int] | None = None,
    heard: Heard | None = None,
) -> list[float | None]:
    """Score (search number, combination) pairs: at most one call a reranker, each distinct (query, combination) once.

    Where searches have keys, the memo is asked first and told afterwards: equal questions over equal texts are then
    one, whichever search, round or process asks. What it holds was computed in other company: outside the deterministic
    mode that may change the last bits of a score, and so, now and then, what is told after rounding.

    Returns one value a pair in its order, rounded to 3 decimals; `None` where the reranker's answer is not finite.
    What each reranker's call took is added to `reranker_ms`; to `computed`, by search, for how many of its pairs a
    reranker was called (of several searches that ask for the same in one round, the first one's); to `unscored`, by
    search, how many of its pairs were told `None`; to `heard` all that was asked and answered.
    """
    scores: list[Score] = [_NO_SCORE] * len(pairs)
    for name, wanted in _by_reranker(searches, pairs).items():
        # A reranker's searches all have keys or none has.
        used = memo if isinstance(next(iter(wanted)), bytes) else None
        known = {} if used is None else _remembered(used, rerankers[name], cast(Collection[bytes], wanted))
        missing = {asked: places for asked, places in wanted.items() if asked not in known} if known else wanted
        firsts = [pairs[places[0]] for places in missing.values()]
        found = _called(name, rerankers[name], searches, firsts, reranker_ms)
        if computed is not None:
            computed.update([number for number, _ in firsts])
        if used is not None:
            used.put({cast(bytes, key): score.raw for key, score in zip(missing, found, strict=True)})
        _put_in_place(scores, zip(found, missing.values(), strict=True))
        _put_in_place(scores, ((score, wanted[key]) for key, score in known.items()))
    values = [_told(score, searches[number].reading) for (number, _), score in zip(pairs, scores, strict=True)]
    if heard is not None:
        _note(heard, pairs, scores, values)
    if unscored is not None and None in values:
        unscored.update([number for (number, _), value in zip(pairs, values, strict=True) if value is None])
    return values


def _by_reranker(searches: Sequence[ScoringContext], pairs: Sequence[Pair]) -> dict[str, dict[Hashable, list[int]]]:
    """By reranker, the places in `pairs` that ask it for the same thing: by the memo's key, or (query, combination)."""
    asked: dict[str, dict[Hashable, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, (number, combination) in enumerate(pairs):
        search = searches[number]
        what = (id(search.prepared), combination) if search.keys is None else search.keys.of(combination)
        asked[search.reranker][what].append(place)
    return asked


def _called(
    name: str,
    reranker: Reranker[Any],
    searches: Sequence[ScoringContext],
    pairs: Sequence[Pair],
    reranker_ms: defaultdict[str, float] | None,
) -> list[Score]:
    """A reranker's scores of pairs, from one call (none without pairs), whose time is added to `reranker_ms`."""
    started = time.perf_counter()
    found = reranker.score([(searches[number].prepared, combination) for number, combination in pairs]) if pairs else []
    if reranker_ms is not None:
        reranker_ms[name] += (time.perf_counter() - started) * 1000.0
    if len(found) != len(pairs):
        raise ProtocolError(f"reranker '{name}' gave {len(found)} scores for {len(pairs)} pairs.")
    return found


def _put_in_place(scores: list[Score], found: Iterable[tuple[Score, Sequence[int]]]) -> None:
    """Put each score at all the places where it was asked for."""
    for score, places in found:
        for place in places:
            scores[place] = score


def _told(score: Score, reading: Reading) -> float | None:
    """A score as a search reads it; None where it is not finite."""
    value = score.raw if reading == "raw" else score.calibrated
    return round(value, SCORE_DECIMALS) if math.isfinite(value) else None


def _note(heard: Heard, pairs: Sequence[Pair], scores: Sequence[Score], values: Sequence[float | None]) -> None:
    """Keep both values of what was told as a score."""
    for (number, combination), score, value in zip(pairs, scores, values, strict=True):
        both = Score(round(score.raw, SCORE_DECIMALS), round(score.calibrated, SCORE_DECIMALS))
        heard[number][combination] = None if value is None else both


def _remembered(memo: Memo, reranker: Reranker[Any], keys: Collection[bytes]) -> dict[Hashable, Score]:
    """The scores that the memo knows, calibrated anew: what it holds may be older than the calibration."""
    calibrated = cast(MemoisedReranker[Any], reranker).calibrated  # only such a reranker's searches have keys
    return {key: Score(raw, calibrated(raw)) for key, raw in memo.get(list(keys)).items()}


def shared_ms(
    searches: Sequence[ScoringContext], pairs: Sequence[int], reranker_ms: Mapping[str, float], total_ms: float
) -> list[float]:
    """Each search's share of the time that all took together, by the pairs that it asked for.

    A reranker's time is shared by the searches that ask it, the rest of `total_ms` by all.
    """
    asked: Counter[str] = Counter()
    for search, number in zip(searches, pairs, strict=True):
        asked[search.reranker] += number
    rest_a_pair = (total_ms - sum(reranker_ms.values())) / max(1, asked.total())
    a_pair = {name: reranker_ms.get(name, 0.0) / max(1, number) + rest_a_pair for name, number in asked.items()}
    return [number * a_pair[search.reranker] for search, number in zip(searches, pairs, strict=True)]
