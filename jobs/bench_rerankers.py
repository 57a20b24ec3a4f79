"""How well rerankers rank single chunks, and how fast: `python -m jobs.bench_rerankers`.

MRR@10 on the highest candidates of the fused retriever, with 95 % intervals, one row a reranker. Of data sets that
`jobs.train_reranker` learns from by default, or that a folder's own figures name, only questions of the documents that
it keeps back are asked. BM25's and the embedder's rows rank the same candidates by these alone, `fusion` leaves them as
they are, and `holding` is the share of questions with evidence among them, which no order can exceed. The experts that
come with the package are compared question by question at the end: what would a choice between them win?
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from corag_ray.batch.estimate import duration_text
from corag_ray.batch.index_folder import open_corpus
from corag_ray.build import build_embedder
from corag_ray.cli import reporting_errors
from corag_ray.config import WINDOW_TOKENS, Config
from corag_ray.config_file import load_config
from corag_ray.errors import ConfigError
from corag_ray.evaluation.candidate_ranking import rank_evidence
from corag_ray.evaluation.evidence import covers_any
from corag_ray.evaluation.intervals import bootstrap_interval, paired_bootstrap
from corag_ray.indexing.open_index import OpenIndex
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.packaged_rerankers import PACKAGED_RERANKERS
from corag_ray.models.protocols import Reranker
from corag_ray.names import RERANKERS
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute as compute_of
from corag_ray.settling import settle
from corag_ray.types import Chunk, Question
from jobs.document_parts import part_of_question
from jobs.fit_calibration import cheap_rerankers
from jobs.made_index import made_index
from jobs.train_reranker import FIGURES, LEARNED_FROM, PARTS, RANKED, TEST_PART

FUSION, LEXICAL, DENSE = "fusion", "bm25", "pooled_embedding"
BASELINES = (FUSION, LEXICAL, DENSE)
"""What a reranker has to be better than: the candidates as they come, and by each of the two searches alone."""
PAIRS_A_SECOND = 20.0
"""Of a cross-encoder of MiniLM's size, for the estimate of time."""
Ranks = dict[str, list[float]]
"""By reranker, the reciprocal rank of each question."""


def main(
    cross_encoder: Annotated[list[Path] | None, typer.Option(help="Folder of a cross-encoder; repeatable.")] = None,
    packaged: Annotated[bool, typer.Option(help="Rank by the packaged cross-encoders too.")] = True,
    data: Annotated[str, typer.Option(help="Data sets, parted by commas.")] = (
        "squad-v1.1-part,selqa,clapnq-dev,scifact"
    ),
    limit: Annotated[int, typer.Option(min=2, help="Questions a set.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Of the questions and of the intervals.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
) -> None:
    """Rank every set's questions by every reranker, and print the tables and their figures."""
    names, folders = data.split(","), cross_encoders(cross_encoder or [], packaged)
    seconds = len(names) * limit * RANKED * len(folders) / PAIRS_A_SECOND + 30 * len(names)
    print(
        f"{len(names)} sets, {len(folders)} cross-encoders: about {duration_text(seconds)}, indexes apart.", flush=True
    )
    report: dict[str, Any] = {}
    experts: Ranks = {expert: [] for expert in folders if expert in PACKAGED_RERANKERS}
    for name in names:
        config = settle(load_config(None, {"dataset": name, "dtype": "float32", "plan": {"threads": threads}}))
        prepare_weights(config)
        ranks, rates, holding = judge(name, config, folders, root, limit, seed)
        report[name] = figures(ranks, rates, seed) | {"questions": len(ranks[FUSION]), "holding": round(holding, 4)}
        for expert, values in experts.items():
            values += ranks[expert]
        Console(width=120).print(table_of(name, report[name]))
    report["experts"] = choice_of(experts, seed)
    print(json.dumps(report))


def judge(
    name: str, config: Config, folders: Mapping[str, Path], root: Path, limit: int, seed: int
) -> tuple[Ranks, dict[str, float], float]:
    """Reciprocal ranks and pairs a second by reranker, and the share of questions with evidence to be ranked."""
    dataset, folder = open_corpus(root, config)
    embedder = build_embedder(config)
    index = made_index(config, dataset, folder, embedder)
    rerankers: list[Reranker[Any]] = [
        *cheap_rerankers(index, embedder),
        *(CrossEncoder(folder, row, WINDOW_TOKENS, compute_of(config)) for row, folder in folders.items()),
    ]
    ranks: Ranks = {FUSION: [], **{reranker.name: [] for reranker in rerankers}}
    seconds = dict.fromkeys(ranks, 0.0)
    held, pairs = [], 0
    asked = questions_to_ask(
        dataset.questions, limit, seed, kept_back=Path(name).name in learned_from(folders.values())
    )
    for question in track(asked, name, console=Console(file=sys.stderr)):
        rows, candidates = candidates_of(question, index)
        pairs += len(candidates)
        ranks[FUSION].append(reciprocal_rank(question, candidates))
        held.append(any(covers_any(chunk, question.evidence) for chunk in candidates))
        for reranker in rerankers:
            started = time.perf_counter()
            order = ranked(reranker, question, candidates, rows)
            seconds[reranker.name] += time.perf_counter() - started
            ranks[reranker.name].append(reciprocal_rank(question, [candidates[place] for place in order]))
    return ranks, {name: pairs / spent for name, spent in seconds.items() if spent}, float(np.mean(held))


def cross_encoders(folders: Sequence[Path], packaged: bool) -> dict[str, Path]:
    """Folders by the names of their rows: of the packaged ones, put together where need be, and the given."""
    told = told_apart(folders)
    ours = {name: one.folder() for name, one in PACKAGED_RERANKERS.items()} if packaged else {}
    return ours | {folder.name: folder for folder in told}


def told_apart(folders: Sequence[Path]) -> list[Path]:
    """The folders, whose names stand for the models in tables and figures.

    Raises:
        ConfigError: two folders, or a folder and a reranker, have one name.
    """
    taken = {*RERANKERS, *PACKAGED_RERANKERS, FUSION}
    for folder in folders:
        if folder.name in taken or not folder.name:
            raise ConfigError(
                f"--cross-encoder {folder}: '{folder.name}' names another row already; rename the folder."
            )
        taken.add(folder.name)
    return list(folders)


def learned_from(folders: Iterable[Path]) -> set[str]:
    """Names of the data sets of which a part may have been trained on, as their trainings tell it, and the usual."""
    named = set(LEARNED_FROM)
    for folder in folders:
        if (folder / FIGURES).is_file():
            named |= set(json.loads((folder / FIGURES).read_text("utf-8"))["data"])
    return named


def questions_to_ask(questions: Sequence[Question], limit: int, seed: int, *, kept_back: bool) -> list[Question]:
    """At most `limit` questions with evidence, drawn; where asked for, of the part that is kept back from training."""
    kept = [question for question in questions if question.evidence]
    if kept_back:
        kept = [question for question in kept if part_of_question(question, PARTS) == TEST_PART]
    return random.Random(seed).sample(kept, min(limit, len(kept)))


def candidates_of(question: Question, index: OpenIndex) -> tuple[list[int], list[Chunk]]:
    """The highest candidates of the first stage, as rows and as chunks."""
    [hits] = index.first_stage.search([question.text], RANKED)
    rows = [row for row, _ in hits]
    return rows, index.store.take(rows)


def ranked(reranker: Reranker[Any], question: Question, candidates: Sequence[Chunk], rows: Sequence[int]) -> list[int]:
    """Places of the candidates, highest raw score first; equal ones, and those without a score last, as they came."""
    prepared = reranker.prepare(question.text, candidates, rows)
    scores = reranker.score([(prepared, (place,)) for place in range(len(candidates))])
    raw = np.nan_to_num([score.raw for score in scores], nan=-np.inf)
    return [int(place) for place in np.argsort(-raw, kind="stable")]


def reciprocal_rank(question: Question, candidates: Sequence[Chunk]) -> float:
    """One over the rank of the first candidate with evidence, 0 beyond the tenth."""
    ranking = rank_evidence(question.evidence, candidates)
    return 0.0 if ranking is None else ranking.reciprocal_rank


def figures(ranks: Ranks, rates: dict[str, float], seed: int) -> dict[str, Any]:
    """By reranker its mean reciprocal rank, interval and rate, and how far it lies above each of `BASELINES`."""
    rows: dict[str, Any] = {}
    for name, values in ranks.items():
        interval = bootstrap_interval(values, seed)
        rows[name] = {
            "mrr": round(float(np.mean(values)), 4),
            "low": interval and round(interval.low, 4),
            "high": interval and round(interval.high, 4),
            "pairs_per_s": round(rates[name], 1) if name in rates else None,
            "above": {other: _above(values, ranks[other], seed) for other in BASELINES if other != name},
        }
    return {"rerankers": rows}


def _above(values: Sequence[float], others: Sequence[float], seed: int) -> dict[str, float | None]:
    """The mean difference over the same questions, with the ends of its interval."""
    found = paired_bootstrap(values, others, seed)
    ends = {"mean": found.mean_difference, "low": found.low, "high": found.high} if found else {}
    return {end: None if value is None else round(value, 4) for end, value in ends.items()}


def choice_of(experts: Ranks, seed: int) -> dict[str, Any]:
    """What choosing for each question the better of several experts wins over the one that is best on average.

    `chosen` is that one, `other_is_better` the share of questions for which another one ranks evidence higher, and
    `gain` the mean that the best choice a question would add, with the ends of their intervals; {} of fewer than two.
    """
    if len(experts) < 2:
        return {}
    chosen = max(experts, key=lambda name: float(np.mean(experts[name])))
    gains = [max(values) - own for own, *values in zip(experts[chosen], *experts.values(), strict=True)]
    found: dict[str, Any] = {"questions": len(gains), "chosen": chosen}
    for told, values in (("other_is_better", [float(gain > 0) for gain in gains]), ("gain", gains)):
        interval = bootstrap_interval(values, seed)
        found[told] = {
            "mean": round(float(np.mean(values)), 4),
            "low": interval and round(interval.low, 4),
            "high": interval and round(interval.high, 4),
        }
    return found


def table_of(name: str, report: dict[str, Any]) -> Table:
    """One row a reranker: its figure, how far that lies above the candidates as they come, and both intervals."""
    title = f"{name}: MRR@10, {report['questions']} questions, {report['holding']:.1%} with evidence among them"
    table = Table("reranker", "MRR@10", "interval", "above fusion", "interval", "pairs/s", title=title)
    for reranker, row in report["rerankers"].items():
        above = row["above"].get(FUSION)
        table.add_row(
            reranker,
            f"{row['mrr']:.3f}",
            _ends(row),
            f"{above['mean']:+.3f}" if above else "–",
            _ends(above) if above else "–",
            f"{row['pairs_per_s']:,.0f}" if row["pairs_per_s"] else "–",
        )
    return table


def _ends(interval: dict[str, Any]) -> str:
    low, high = interval["low"], interval["high"]
    return "–" if low is None or high is None else f"{low:.3f} to {high:.3f}"


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
