"""Explanations of searches that were driven by hand over made chunks."""

from __future__ import annotations

from corag_ray.core.drive import drive_lockstep
from corag_ray.core.strategy import Candidates
from corag_ray.core.trace import trace
from corag_ray.pipeline import Choice, Choices
from corag_ray.reports.explanation import Explanation, explained
from corag_ray.types import Chunk, Combination, Document, Question, Score

# Figure 1 of the paper: chunks of 256 tokens. What it does not give is set here: x4 0.5, everything else 0.2.
FIGURE = {(0,): 0.3, (2,): 0.8, (0, 2): 0.4, (2, 3): 0.8, (3, 2): 0.9, (0, 1, 3): 0.6, (3,): 0.5}
LOGITS = {0.2: -1.386, 0.3: -0.847, 0.4: -0.405, 0.5: 0.0, 0.6: 0.405, 0.8: 1.386, 0.9: 2.197}
FIGURE_COSTS = (256,) * 4


def figure_score(combination: Combination) -> Score:
    calibrated = FIGURE.get(combination, 0.2)
    return Score(LOGITS[calibrated], calibrated)


def driven(search, score, pair_limit=None):
    """What a search asked for and was told, in order, when it was driven to its end."""
    asked: dict[Combination, Score | None] = {}

    def score_round(pairs):
        told = {combination: score(combination) for _, combination in pairs}
        asked.update(told)
        return [told[c] and getattr(told[c], search.reading) for _, c in pairs]

    drive_lockstep([search], score_round, in_flight=1, pair_limit=pair_limit)
    return asked


def candidates_of(costs, *, order_matters=True) -> Candidates:
    count = len(costs)
    priors = tuple(1 - number / 100 for number in range(count))
    alike = tuple(tuple(float(a == b) for a in range(count)) for b in range(count))
    return Candidates(tuple(costs), priors, tuple(range(count)), (0,) * count, alike, order_matters)


def explained_search(
    make, params, costs, budget, score, *, question="why?", text="text", doc="d", pair_limit=None
) -> Explanation:
    """The explanation of one search; candidate n is a chunk of document "d{n}", whose first line is "title {n}"."""
    candidates = candidates_of(costs)
    search = make(candidates, budget, params)
    asked = driven(search, score, pair_limit)
    chunks = [Chunk(n + 1, f"{doc}{n}", 0, 0, 9, f"{text} {n}", cost) for n, cost in enumerate(costs)]
    choice = Choice(
        "retrieval",
        selection=[chunks[n] for n in (search.best() or ((), 0.0))[0]],
        pairs=len(asked),
        pairs_computed=len(asked),
        pairs_unscored=sum(told is None for told in asked.values()),
        reranker="made",
        effective_budget_tokens=budget,
        latency_ms={"retrieve": 1.25, "search": 9.5},
        trace=trace(search, candidates, budget, asked),
    )
    choices = Choices(Question("q", question), chunks, {"m": choice}, index_version="1-abc")
    documents = [Document(f"{doc}{n}", f"\n title {n} of {text}\nmore") for n in range(len(costs))]
    return explained(choices, "m", {"strategy": "made"}, documents)


def without_search() -> Explanation:
    """Of a method that takes the gold passages."""
    gold = Chunk(0, "g", 0, 3, 9, "gold", 7)
    choice = Choice("gold", [gold], effective_budget_tokens=8)
    choices = Choices(Question("q", "why?"), [Chunk(1, "d", 0, 0, 9, "text", 5)], {"m": choice}, index_version="1-abc")
    return explained(choices, "m", {}, [Document("g", "The title\ngold")])
