"""The only two loops that run strategies: many in lockstep for batches, one asynchronously for serving."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from corag_ray.core.strategy import Strategy
from corag_ray.errors import ConfigError, ProtocolError
from corag_ray.types import Combination

ScoreRound = Callable[[list[tuple[int, Combination]]], list[float | None]]
"""(number of the search, combination) pairs of one round to their scores, in order."""
ScoreAsk = Callable[[list[Combination]], Awaitable[list[float | None]]]
"""One search's combinations to their scores, in order."""


def drive_lockstep(
    searches: Sequence[Strategy],
    score: ScoreRound,
    *,
    in_flight: int,
    ask_limit: int = 512,
    pair_limit: int | None = None,
) -> list[int]:
    """Run every search to its end, merging the asks of those in flight into one `score` call a round.

    Args:
        searches: each is told its own scores only, so its course does not depend on the company.
        score: pairs to scores; `None`, NaN and infinities mean "could not be scored".
        in_flight: how many searches run at a time; a finished one is replaced within the round, so batches stay full.
        ask_limit: combinations at most that one search asks for in one round.
        pair_limit: pairs at most for each search; it then ends early, and `best()` answers from what it was told.

    Returns:
        For each search its pairs: the distinct combinations that it asked for.

    Raises:
        ConfigError: `in_flight` or `ask_limit` is below 1.
        ProtocolError: `score` or a strategy answered in the wrong shape.
    """
    if in_flight < 1:
        raise ConfigError(f"in_flight must be at least 1, not {in_flight}.")
    pairs = [0] * len(searches)
    active: dict[int, set[Combination]] = {}  # sets of the searches in flight only: thousands of queries would not fit
    waiting = iter(range(len(searches)))
    while True:
        asks = {number: _ask(searches[number], seen, ask_limit, pair_limit) for number, seen in active.items()}
        for number in [number for number, asked in asks.items() if not asked]:
            del asks[number], active[number]
        while len(asks) < in_flight and (number := next(waiting, -1)) >= 0:
            seen: set[Combination] = set()
            if asked := _ask(searches[number], seen, ask_limit, pair_limit):
                asks[number], active[number] = asked, seen
        if not asks:
            return pairs
        scores = score([(number, combination) for number, asked in asks.items() for combination in asked])
        _check_length(sum(map(len, asks.values())), scores)
        start = 0
        for number, asked in asks.items():
            _tell(searches[number], asked, scores[start : start + len(asked)])
            start += len(asked)
            pairs[number] = len(active[number])


class OutOfTime(Exception):
    """Raised by a `score` of `drive_async` whose time is up: the search ends with what it was told."""


async def drive_async(search: Strategy, score: ScoreAsk, *, ask_limit: int = 512, pair_limit: int | None = None) -> int:
    """Run one search to its end, or until `score` is out of time, and return its pairs: those that were told.

    `drive_lockstep` says what the arguments mean.
    """
    seen: set[Combination] = set()
    told = 0
    while asked := _ask(search, seen, ask_limit, pair_limit):
        try:
            scores = await score(asked)
        except OutOfTime:
            break
        _check_length(len(asked), scores)
        _tell(search, asked, scores)
        told = len(seen)
    return told


def _ask(search: Strategy, seen: set[Combination], ask_limit: int, pair_limit: int | None) -> list[Combination]:
    """The search's next ask, added to `seen`; `[]` when it is finished or its pairs are used up."""
    if ask_limit < 1:
        raise ConfigError(f"ask_limit must be at least 1, not {ask_limit}.")
    # The pair limit shortens the ask, not the tell: what was asked for is always told as a whole.
    limit = ask_limit if pair_limit is None else min(ask_limit, pair_limit - len(seen))
    if limit < 1:
        return []
    asked = search.ask(limit)
    if len(asked) > limit or len(set(asked)) < len(asked):
        name = type(search).__name__
        raise ProtocolError(f"{name}.ask({limit}) must give distinct combinations, at most {limit}, not {asked}.")
    seen.update(asked)
    return asked


def _check_length(expected: int, scores: Sequence[float | None]) -> None:
    if len(scores) != expected:
        raise ProtocolError(f"score was given {expected} combinations and must give as many scores, not {len(scores)}.")


def _tell(search: Strategy, asked: Sequence[Combination], scores: Sequence[float | None]) -> None:
    # A NaN is larger and smaller than nothing, so one of them would decide walks by chance: it is no score.
    finite = (value if value is not None and math.isfinite(value) else None for value in scores)
    search.tell(dict(zip(asked, finite, strict=True)))
