"""What a shared prefix saves: query likelihood over whole searches, common beginnings computed once or every time.

`python -m jobs.bench_query_likelihood --data sample --limit 60`. Two searches of one question in float32: the preset
`seed`, and a greedy one that goes straight down to combinations of four. Each round of a search is scored by both
sides, one after the other, so that other work on the machine falls on both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from corag_ray.batch.estimate import duration_text, generator_seconds
from corag_ray.batch.index_folder import open_corpus
from corag_ray.build import build_embedder
from corag_ray.cli import reporting_errors
from corag_ray.config_file import load_config
from corag_ray.core.drive import drive_lockstep
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch, SearchParams
from corag_ray.core.strategy import Candidates
from corag_ray.models.packaged import SMOLLM2
from corag_ray.models.query_likelihood import PreparedLikelihood, QueryLikelihood
from corag_ray.models.torch_setup import Compute
from corag_ray.prepare import prepare_weights
from corag_ray.settling import settle
from corag_ray.types import Combination
from jobs.made_index import made_index

BUDGET_TOKENS = 1024
DEEP = replace(PRESETS["seed"], exploration=0.0, cost_weight=0.0, iterations=4)
SEARCHES = {"seed": PRESETS["seed"], "deep": DEEP}
UNSHARED = 1_000_000
"""A least shared length that no sequence reaches."""


@dataclass(slots=True)
class Round:
    """One call of the reranker: tokens of its whole sequences, the fewest that the tree allows, and both sides'."""

    depth: int
    asked: int
    bound: int
    computed: int
    shared_seconds: float
    plain_seconds: float
    difference: float


@dataclass(slots=True)
class Sides:
    """Scores a search's rounds on both sides; the search is told the shared side's."""

    shared: QueryLikelihood
    plain: QueryLikelihood
    prepared: PreparedLikelihood
    rounds: list[Round] = field(default_factory=list)

    def score(self, asked: list[tuple[int, Combination]]) -> list[float | None]:
        """One round."""
        pairs = [(self.prepared, combination) for _, combination in asked]
        asked_before, computed_before = self.shared.tokens_asked, self.shared.tokens_computed
        started = time.perf_counter()
        found = self.shared.score(pairs)
        between = time.perf_counter()
        expected = self.plain.score(pairs)
        self.rounds.append(
            Round(
                depth=max(len(combination) for _, combination in asked),
                asked=self.shared.tokens_asked - asked_before,
                bound=self._bound([combination for _, combination in asked]),
                computed=self.shared.tokens_computed - computed_before,
                shared_seconds=between - started,
                plain_seconds=time.perf_counter() - between,
                difference=max(abs(a.raw - b.raw) for a, b in zip(found, expected, strict=True)),
            )
        )
        return [score.raw for score in found]

    def _bound(self, combinations: Sequence[Combination]) -> int:
        """Tokens of the call's policy tree: the head once, each distinct prefix's last chunk once, each tail apart."""
        prefixes = {c[: n + 1] for c in combinations for n in range(len(c))}
        tail = len(self.shared.sequence(self.prepared, ())) - len(self.shared.head)
        chunks = sum(len(self.prepared.chunks[prefix[-1]]) for prefix in prefixes)
        return len(self.shared.head) + chunks + tail * len(combinations)


def main(
    data: Annotated[str, typer.Option(help="Data set; its first question is asked.")] = "sample",
    limit: Annotated[int, typer.Option(min=5, help="Candidates.")] = 60,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
) -> None:
    """Run both searches and print tokens, bounds and ratios."""
    config = settle(load_config(None, {"dataset": data, "dtype": "float32"}))
    prepare_weights(config)
    dataset, folder = open_corpus(root, config)
    tokens = limit * (10 * 300 + 4 * 400) + limit * 14 * 170  # rounds of whole sequences, and of their last chunks
    print(f"{limit} candidates, two searches, two sides: about {duration_text(generator_seconds(tokens, threads))}.")
    index = made_index(config, dataset, folder, build_embedder(config))
    question = dataset.questions[0].text
    [hits] = index.first_stage.search([question], limit)
    chunks = index.store.take([row for row, _ in hits])
    candidates = Candidates(
        costs=tuple(chunk.cost for chunk in chunks),
        priors=tuple(score for _, score in hits),
        documents=tuple(range(len(chunks))),
        positions=tuple(chunk.position for chunk in chunks),
    )
    compute = Compute(threads)
    shared, plain = QueryLikelihood(SMOLLM2.folder(), compute), QueryLikelihood(SMOLLM2.folder(), compute, UNSHARED)
    prepared = shared.prepare(question, chunks, [])
    plain.score([(prepared, (0,))])  # untimed: both models' weights are read once
    shared.score([(prepared, (0,))])
    figures = {name: _search(Sides(shared, plain, prepared), candidates, params) for name, params in SEARCHES.items()}
    print(json.dumps({"candidates": len(chunks)} | figures))


def _search(sides: Sides, candidates: Candidates, params: SearchParams) -> dict[str, object]:
    [pairs] = drive_lockstep([PolicyTreeSearch(candidates, BUDGET_TOKENS, params)], sides.score, in_flight=1)
    rounds = sides.rounds
    deepest = max(one.depth for one in rounds)
    return {
        "pairs": pairs,
        "tokens_without_sharing": sum(one.asked for one in rounds),
        "tokens_computed": sum(one.computed for one in rounds),
        "computed_to_bound": round(sum(one.computed for one in rounds) / sum(one.bound for one in rounds), 4),
        "fewer_tokens": round(sum(one.asked for one in rounds) / sum(one.computed for one in rounds), 3),
        "deepest": deepest,
        "fewer_tokens_at_deepest": round(
            sum(one.asked for one in rounds if one.depth == deepest)
            / sum(one.computed for one in rounds if one.depth == deepest),
            3,
        ),
        "largest_score_difference": max(one.difference for one in rounds),
        "seconds_ratio": round(sum(one.plain_seconds for one in rounds) / sum(one.shared_seconds for one in rounds), 3),
    }


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
