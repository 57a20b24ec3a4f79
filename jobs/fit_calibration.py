"""Fits the curves that turn raw scores into probabilities: `python -m jobs.fit_calibration --limit 100`.

Of each question's candidates it draws combinations of one to three chunks that hold evidence and as many that do not.
Documents are split into two halves by their ids: a question counts with the half that holds all its evidence, and its
candidates are those of that half, so no document is on both sides. Curves are fitted on one half and judged on the
other.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from corag_ray.batch.index_folder import open_corpus
from corag_ray.build import build_embedder
from corag_ray.cli import reporting_errors
from corag_ray.config_file import load_config
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import DataError
from corag_ray.evaluation.evidence import covers_any
from corag_ray.indexing.open_index import OpenIndex
from corag_ray.models.bm25_combination import BM25Combination
from corag_ray.models.calibration import CALIBRATIONS, Calibration, read_calibrations
from corag_ray.models.late_interaction import LateInteraction
from corag_ray.models.pooled_embedding import PooledEmbedding
from corag_ray.models.protocols import Embedder, Reranker
from corag_ray.models.query_likelihood import QueryLikelihood
from corag_ray.names import EMBEDDERS, GENERATORS
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute as compute_of
from corag_ray.types import Chunk, Combination, Question
from jobs.document_parts import in_one_part, part_of_document
from jobs.made_index import made_index

SIZES = (1, 2, 3)
"""Chunks of the combinations that are drawn: two of each size a question, one with evidence and one without."""
BINS = 10
HALVES = 2
"""One to fit on, one to judge on."""
READ_BY_DEFAULT_MAPPING = {"bm25"}
"""Rerankers whose curve reads the default mapping of the raw score, as their classes say."""
Floats = NDArray[np.float64]


@dataclass(slots=True)
class Sample:
    """Of one reranker and half, by combination: what the curve reads, the default mapping, and what is true."""

    read: list[float] = field(default_factory=list)
    default: list[float] = field(default_factory=list)
    relevant: list[bool] = field(default_factory=list)


Samples = dict[tuple[str, int], Sample]
"""By (reranker, half)."""


def main(
    data: Annotated[
        str, typer.Option(help="Data sets, parted by commas; their licences must allow it.")
    ] = "hotpotqa-sample,asqa-sample",
    limit: Annotated[int, typer.Option(min=10, help="Questions a set.")] = 100,
    likelihood_limit: Annotated[
        int, typer.Option(min=1, help="Questions a set for query likelihood, which reads every combination.")
    ] = 20,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="File of calibrations; entries of other revisions stay.")] = CALIBRATIONS,
) -> None:
    """Draw, score, fit, judge, and write the file."""
    samples: Samples = defaultdict(Sample)
    questions = 0
    names = data.split(",")
    for name in names:
        config = load_config(None, {"dataset": name, "dtype": "float32", "plan": {"threads": threads}})
        prepare_weights(config)
        dataset, folder = open_corpus(root, config)
        embedder = build_embedder(config)
        index = made_index(config, dataset, folder, embedder)
        used = score_set(dataset, index, cheap_rerankers(index, embedder), limit, samples)
        questions += used
        likelihood = QueryLikelihood(GENERATORS[config.generation.model].folder(), compute_of(config))
        score_set(dataset, index, [likelihood], likelihood_limit, samples)
        print(f"{name}: {used} questions with combinations of both kinds.", flush=True)
    revisions = {
        "late_interaction": EMBEDDERS[config.embedder].revision,
        "pooled_embedding": EMBEDDERS[config.embedder].revision,
        "bm25": None,
        "query_likelihood": GENERATORS[config.generation.model].revision,
    }
    earlier = dict(read_calibrations(out)) if out.exists() else {}
    for name, revision in revisions.items():
        fitted = judged_fit(samples[name, 0], samples[name, 1])
        earlier[name, revision] = entry_of(earlier, name, revision, fitted, names)
    out.write_text(json.dumps(list(earlier.values()), indent=2) + "\n", encoding="utf-8")
    print(json.dumps({"questions": questions, "calibrations": [earlier[key] for key in revisions.items()]}))


def cheap_rerankers(index: OpenIndex, embedder: Embedder) -> list[Reranker[Any]]:
    """Those that read no text anew for a combination, without calibration."""
    return [
        LateInteraction(embedder, index.token_vectors),
        PooledEmbedding(embedder, index.dense.vectors),
        BM25Combination(index.lexical, index.store.total_cost / len(index.store)),
    ]


def half_of_document(doc_id: str) -> int | None:
    """The half that a document is of."""
    return part_of_document(doc_id, HALVES)


def score_set(
    dataset: Dataset,
    index: OpenIndex,
    rerankers: Sequence[Reranker[Any]],
    limit: int,
    samples: Samples,
    half_of: Callable[[str], int | None] = half_of_document,
) -> int:
    """Add the scores of a set's combinations to the samples; returns how many of its questions gave some.

    `half_of` tells a document's half by its id, and None of one that is to be left out.
    """
    chance = random.Random(0)
    asked = [(question, half) for question in dataset.questions if (half := in_one_part(question, half_of)) is not None]
    asked = asked[:: max(1, len(asked) // limit)][:limit]  # from all over the file: it may be sorted by document
    used = 0
    for question, half in asked:
        [hits] = index.first_stage.search([question.text], 60)
        rows = [row for row, _ in hits]
        found = [(row, chunk) for row, chunk in zip(rows, index.store.take(rows), strict=True)]
        found = [(row, chunk) for row, chunk in found if half_of(chunk.doc_id) == half]
        chunks = [chunk for _, chunk in found]
        drawn = draw(chunks, question, chance)
        used += bool(drawn)
        for reranker in rerankers if drawn else ():
            prepared = reranker.prepare(question.text, chunks, [row for row, _ in found])
            sample = samples[reranker.name, half]
            for (_, relevant), score in zip(
                drawn, reranker.score([(prepared, combination) for combination, _ in drawn]), strict=True
            ):
                sample.read.append(score.calibrated if reranker.name in READ_BY_DEFAULT_MAPPING else score.raw)
                sample.default.append(score.calibrated)
                sample.relevant.append(relevant)
    return used


def draw(chunks: Sequence[Chunk], question: Question, chance: random.Random) -> list[tuple[Combination, bool]]:
    """For each size a combination that holds evidence and one that holds none, where the candidates allow both."""
    numbers = range(len(chunks))
    holding = [n for n in numbers if covers_any(chunks[n], question.evidence)]
    others = sorted(set(numbers) - set(holding))
    drawn: list[tuple[Combination, bool]] = []
    for size in SIZES:
        if holding and len(others) >= size:
            first = chance.choice(holding)
            members = [first, *chance.sample([n for n in numbers if n != first], size - 1)]
            chance.shuffle(members)
            drawn += [(tuple(members), True), (tuple(chance.sample(others, size)), False)]
    return drawn


def judged_fit(fit_on: Sample, judge_on: Sample) -> dict[str, float]:
    """The curve fitted on one sample; the other's Brier score and calibration error, by default mapping and by curve.

    Raises:
        DataError: a sample is empty, or the scores do not tell evidence from the rest.
    """
    if not fit_on.read or not judge_on.read:
        raise DataError("one half of the documents gave no combination: raise --limit, or name more data.")
    slope, offset = (round(value, 4) for value in platt(np.array(fit_on.read), np.array(fit_on.relevant)))
    curve = Calibration(slope, offset, 1)
    after = np.array([curve.calibrated(value) for value in judge_on.read])
    before, relevant = np.array(judge_on.default), np.array(judge_on.relevant)
    return {
        "slope": slope,
        "offset": offset,
        "pairs_fitted": len(fit_on.read),
        "pairs_judged": len(judge_on.read),
        "brier_before": round(brier(before, relevant), 4),
        "brier_after": round(brier(after, relevant), 4),
        "calibration_error_before": round(expected_calibration_error(before, relevant), 4),
        "calibration_error_after": round(expected_calibration_error(after, relevant), 4),
    }


def platt(raw: Floats, relevant: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and offset of the logistic regression of `relevant` on `raw`, without a penalty."""
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10).fit(raw[:, None], relevant)
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def brier(chances: Floats, relevant: NDArray[np.bool_] | Floats) -> float:
    """Mean squared difference of chance and truth, or share of it: 0 is perfect, always saying one half gives 0.25."""
    return float(np.mean((chances - relevant) ** 2))


def expected_calibration_error(chances: Floats, relevant: NDArray[np.bool_] | Floats) -> float:
    """Mean difference of chance and share of relevant, over ten bins of equal width, weighted by what they hold."""
    bins = np.minimum((chances * BINS).astype(int), BINS - 1)
    gaps = [abs(float((chances[bins == b] - relevant[bins == b]).sum())) for b in range(BINS)]
    return sum(gaps) / len(chances)


def entry_of(
    earlier: Mapping[tuple[str, str | None], Mapping[str, Any]],
    name: str,
    revision: str | None,
    fitted: Mapping[str, Any],
    data: Sequence[str],
) -> dict[str, Any]:
    """A curve as a file of curves holds it, beside those that it held before."""
    version = next_version(earlier, name, revision, fitted)
    return {"reranker": name, "revision": revision, "version": version, **fitted, "data": list(data)}


def next_version(
    earlier: Mapping[tuple[str, str | None], Mapping[str, Any]],
    name: str,
    revision: str | None,
    fitted: Mapping[str, Any],
) -> int:
    """The stored version where the curve is the same, else one more than any of this reranker."""
    stored = earlier.get((name, revision))
    if stored is not None and (stored["slope"], stored["offset"]) == (fitted["slope"], fitted["offset"]):
        return int(stored["version"])
    return 1 + max((int(entry["version"]) for (other, _), entry in earlier.items() if other == name), default=0)


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
