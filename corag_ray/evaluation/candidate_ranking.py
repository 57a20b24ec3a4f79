"""How high the first stage ranks the evidence: reciprocal rank and nDCG, by ir_measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ir_measures
from ir_measures import RR, nDCG

from corag_ray.evaluation.evidence import covers
from corag_ray.types import Chunk, Evidence

CUT = 10


@dataclass(frozen=True, slots=True)
class CandidateRanking:
    """Of one question's candidates, to rank 10, each in 0..1."""

    reciprocal_rank: float
    ndcg: float


def rank_evidence(evidence: Sequence[Evidence], candidates: Sequence[Chunk]) -> CandidateRanking | None:
    """Reciprocal rank and nDCG at 10.

    What is ranked is evidence, not chunks: a span counts once, at the rank of the first candidate that covers it, and
    the ideal list holds every span of the question first. So overlapping chunks of one passage earn no gain twice, and
    evidence that no candidate covers lowers nDCG. A candidate that covers several spans at once takes a place for each.

    Returns:
        None when the question marks no evidence.
    """
    if not evidence:
        return None
    wanted = {"q": {f"evidence {n}": 1 for n in range(len(evidence))}}
    found: list[str] = []
    for rank, chunk in enumerate(candidates):
        new = [f"evidence {n}" for n, item in enumerate(evidence) if covers(chunk, item)]
        new = [name for name in new if name not in found]
        found += new or [f"chunk {rank}"]
    run = {"q": {name: float(-place) for place, name in enumerate(found)}}
    values = ir_measures.calc_aggregate([RR @ CUT, nDCG @ CUT], wanted, run) if found else {}
    return CandidateRanking(float(values.get(RR @ CUT, 0.0)), float(values.get(nDCG @ CUT, 0.0)))
