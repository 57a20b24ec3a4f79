"""Mistakes of a set head, found as they will be made: by searches that maximise what it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from corag_ray.core.beam import BeamParams, BeamSearch
from corag_ray.core.drive import drive_lockstep
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.strategy import Candidates, Strategy
from corag_ray.models.combination_reranker import CombinationReranker, PreparedRows
from corag_ray.models.protocols import Embedder
from corag_ray.models.set_head import SetHead
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Combination
from jobs.combination.checkpoint import Example, Mined
from jobs.combination.examples import MAX_CHUNKS, Asked, grade
from jobs.combination.features import prepared_rows

PAIRS_A_SEARCH = 250
BUDGET_TOKENS = 512
KEPT = 4
"""Wrong combinations of a question and round, at most."""
SEARCHES_IN_FLIGHT = 64
BEAM = BeamParams(width=4, reading="calibrated")
TREE = replace(PRESETS["report"], reading="calibrated", exploration=0.5, cost_weight=0.0)


def mine(
    examples: Sequence[Example], numbers: Sequence[int], head: SetHead, embedder: Embedder, compute: Compute
) -> Mined:
    """By example, the combinations that scored above the ideal one though their grade is lower, the highest first.

    Half of the questions are searched by beam, half by policy tree.
    """
    reranker = CombinationReranker(embedder, None, head, compute)
    found: Mined = {}
    for start in range(0, len(numbers), SEARCHES_IN_FLIGHT):
        block = numbers[start : start + SEARCHES_IN_FLIGHT]
        rows = [prepared_rows(head, examples[number].matches) for number in block]
        searched = _Searched(reranker, rows)
        searches = [_search(examples[number].asked, by_tree=number % 2 == 1) for number in block]
        drive_lockstep(searches, searched.score, in_flight=SEARCHES_IN_FLIGHT, pair_limit=PAIRS_A_SEARCH)
        ideals = [examples[number].asked.ideal()[:MAX_CHUNKS] for number in block]
        wanted = reranker.score(list(zip(rows, ideals, strict=True)))
        for place, (number, of_ideal) in enumerate(zip(block, wanted, strict=True)):
            if wrong := mistakes(examples[number].asked, searched.scores[place], of_ideal.calibrated):
                found[number] = wrong
    return found


@dataclass(slots=True)
class _Searched:
    """Scores the asks of a block of searches and keeps, by search, what it said."""

    reranker: CombinationReranker
    rows: list[PreparedRows]
    scores: dict[int, dict[Combination, float]] = field(default_factory=lambda: defaultdict(dict))

    def score(self, asked: list[tuple[int, Combination]]) -> list[float | None]:
        """One round."""
        found = self.reranker.score([(self.rows[place], combination) for place, combination in asked])
        for (place, combination), score in zip(asked, found, strict=True):
            self.scores[place][combination] = score.calibrated
        return [score.calibrated for score in found]


def mistakes(asked: Asked, scored: dict[Combination, float], score_of_ideal: float) -> list[Combination]:
    """Of scored combinations those of lower grade than the ideal one and no lower score: the highest few."""
    best = grade(asked, asked.ideal()[:MAX_CHUNKS])
    wrong = [
        combination
        for combination, score in scored.items()
        if score >= score_of_ideal and len(combination) <= MAX_CHUNKS and grade(asked, combination) < best
    ]
    return sorted(wrong, key=lambda combination: -scored[combination])[:KEPT]


def _search(asked: Asked, *, by_tree: bool) -> Strategy:
    documents: dict[str, int] = {}
    candidates = Candidates(
        costs=tuple(chunk.cost for chunk in asked.chunks),
        priors=tuple(1 / (1 + rank) for rank in range(len(asked.chunks))),
        documents=tuple(documents.setdefault(chunk.doc_id, len(documents)) for chunk in asked.chunks),
        positions=tuple(chunk.position for chunk in asked.chunks),
    )
    return PolicyTreeSearch(candidates, BUDGET_TOKENS, TREE) if by_tree else BeamSearch(candidates, BUDGET_TOKENS, BEAM)
