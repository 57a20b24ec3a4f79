"""An experiment from configuration to report: data, index, benchmark, summary, files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corag_ray.batch.estimate import estimate_seconds, not_estimated
from corag_ray.batch.index_folder import ensure_index, open_corpus
from corag_ray.batch.progress import Advance, stages
from corag_ray.batch.row_writer import count_rows
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import CoragError
from corag_ray.evaluation.evidence import answering_evidence, evidence_recall
from corag_ray.evaluation.intervals import mean
from corag_ray.evaluation.manifest import begin_session, end_session, make_manifest
from corag_ray.evaluation.row_log import Row
from corag_ray.evaluation.summarise import headline, summarise
from corag_ray.evaluation.summary import Summary
from corag_ray.identity import index_spec, run_fingerprint
from corag_ray.indexing.merge import CHUNKS
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.versions import MANIFEST as INDEX_MANIFEST
from corag_ray.indexing.versions import find_version, holds_version, is_finished, read_json
from corag_ray.names import calibrations, reranker_traits
from corag_ray.prepare import prepare_weights
from corag_ray.reports.html import write_report
from corag_ray.reports.table import markdown_table
from corag_ray.settling import settle
from corag_ray.types import Question

SUMMARY, TABLE, REPORT = "summary.json", "table.md", "report.html"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A configuration with its data loaded and its folders chosen."""

    name: str
    config: Config
    dataset: Dataset
    index_folder: Path
    run_folder: Path

    @property
    def num_questions(self) -> int:
        """Questions that the run covers."""
        return len(self.dataset.questions[: self.config.limit])

    def count_answered(self) -> int:
        """Questions whose rows an earlier, stopped run has left.

        Raises:
            DataError: a line of the row log is no row.
        """
        return min(count_rows(self.run_folder), self.num_questions)

    @property
    def makes_index(self) -> bool:
        """Whether there is no index yet: its making is then part of `estimate_seconds`."""
        return not is_finished(self.index_folder)

    def estimate_seconds(self) -> float:
        """Seconds to the report, for what is not there yet and is not named by `not_estimated`."""
        characters = sum(len(d.text) for d in self.dataset.documents) if self.makes_index else 0
        chunks = characters / 4.2 / self.config.chunking.size_tokens  # about 4.2 characters a token in English
        return estimate_seconds(self.config, self.num_questions - self.count_answered(), int(chunks))

    @property
    def not_estimated(self) -> list[str]:
        """What takes time besides `estimate_seconds`: how much of an old index can stay is not known before."""
        is_there = holds_version(self.index_folder, index_spec(self.config, self.dataset))
        updates = ["the index's update"] if not self.makes_index and not is_there else []
        return updates + not_estimated(self.config)


def open_experiment(config: Config, name: str | None, root: Path, run_folder: Path | None = None) -> Experiment:
    """Load the data and choose the folders: the same configuration finds its earlier, unfinished run again.

    Args:
        config: what to run.
        name: names the run in its folder and report; the data set's name if None.
        root: folder of runs and indexes.
        run_folder: where the run is kept, instead of a folder under `root` named for the configuration.
    """
    prepare_weights(config)
    dataset, index_folder = open_corpus(root, config)
    config = settle(config)
    name = name or dataset.name
    chosen = run_folder or root / f"{name}-{run_fingerprint(config, dataset)[:8]}"
    return Experiment(name, config, dataset, index_folder, chosen)


def run_experiment(experiment: Experiment, indexing: Advance, answering: Advance) -> tuple[Summary, dict[str, Any]]:
    """Run what is missing, write rows, manifest, summary and report; returns the summary and the headline.

    Raises:
        CoragError: more questions failed than `max_failed_share` bears; everything is written all the same.
    """
    stages.info("importing Ray")  # it takes seconds: a mistyped name is told without
    from corag_ray.batch.benchmark import open_run, run_missing

    config, dataset, folder = experiment.config, experiment.dataset, experiment.run_folder
    ensure_index(config, dataset, experiment.index_folder, indexing)
    version = find_version(experiment.index_folder, index_spec(config, dataset))
    questions = dataset.questions[: config.limit]
    coverable = _coverable(questions, ChunkStore.open(version / CHUNKS))
    rerankers = reranker_traits(config)
    facts = {
        "missing_evidence": dataset.missing_evidence,
        "coverable_evidence": coverable,
        "index": read_json(version / INDEX_MANIFEST),
        "rerankers": rerankers,
        "calibrations": {name: curve and asdict(curve) for name, curve in calibrations(config).items()},
    }
    fingerprint = run_fingerprint(config, dataset)
    manifest = make_manifest(experiment.name, fingerprint, config.publishable, **facts)
    with open_run(config, dataset, folder) as writer:  # held to the end: nothing of another run is written in between
        begin_session(folder, manifest)
        run_missing(config, dataset, experiment.index_folder, writer, answering)
        end_session(folder, manifest)
        rows = writer.rows
        summary = summarise(
            rows,
            seed=config.seed,
            coverable_evidence=coverable,
            order_blind=[name for name, traits in rerankers.items() if not traits["order_sensitive"]],
        )
        figures = headline(summary) | {"lost": len(questions) - len({row["question_id"] for row in rows})}
        figures |= {key: facts[key] for key in ("missing_evidence", "coverable_evidence")}
        (folder / SUMMARY).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        (folder / TABLE).write_text(markdown_table(summary), encoding="utf-8")
        write_report(folder / REPORT, summary, manifest, rows)
    _check_failures(rows, config.max_failed_share, folder)
    return summary, figures


def _coverable(questions: Sequence[Question], store: ChunkStore) -> float | None:
    """Mean evidence recall if every chunk of the evidence's documents were selected.

    It is below 1 where a span is longer than two chunks. Copies in other documents are not looked for.
    """
    marked = [answering_evidence(question) for question in questions]
    by_document = store.rows_by_document({e.span.doc_id for evidence in marked for e in evidence})
    recalls = []
    for evidence in marked:
        rows = [row for doc_id in {e.span.doc_id for e in evidence} for row in by_document.get(doc_id, [])]
        recalls.append(evidence_recall(evidence, store.take(rows)))
    return mean(recalls)


def _check_failures(rows: Sequence[Row], max_failed_share: float, folder: Path) -> None:
    failed = [row for row in rows if row["error"] is not None]
    if len(failed) > max_failed_share * len(rows):
        first = failed[0]["error"] or {"message": ""}
        raise CoragError(
            f"{len(failed)} of {len(rows)} questions failed, above max_failed_share = {max_failed_share:g}; "
            f"the first, '{failed[0]['question_id']}': {first['message']} Rows and report are in {folder}."
        )
