"""An experiment from configuration to report: data, index, benchmark, summary, files."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag_ray.batch.benchmark import Advance, run_benchmark
from corag_ray.batch.estimate import estimate_seconds
from corag_ray.batch.index_job import ensure_index
from corag_ray.build import check_names, default_index_folder, run_fingerprint
from corag_ray.config import Config
from corag_ray.datasets.folder import Dataset, load_dataset
from corag_ray.evaluation.manifest import make_manifest, write_manifest
from corag_ray.evaluation.rows import headline, summarise
from corag_ray.evaluation.summary import Summary
from corag_ray.indexing.open_index import is_finished, read_manifest
from corag_ray.reports.html import write_report

SUMMARY, REPORT = "summary.json", "report.html"


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

    def estimate_seconds(self) -> float:
        """Seconds from nothing to the report, for what is not there yet when nothing of the run is."""
        characters = 0 if is_finished(self.index_folder) else sum(len(d.text) for d in self.dataset.documents)
        chunks = characters / 4.2 / self.config.chunking.size_tokens  # about 4.2 characters a token in English
        return estimate_seconds(self.config, self.num_questions, int(chunks))


def open_experiment(config: Config, name: str, root: Path, run_folder: Path | None = None) -> Experiment:
    """Load the data and choose the folders: the same configuration finds its earlier, unfinished run again.

    Args:
        config: what to run.
        name: names the run in its folder and report.
        root: folder of runs and indexes.
        run_folder: where the run is kept, instead of a folder under `root` named for the configuration.
    """
    check_names(config)
    dataset = load_dataset(config.dataset)
    chosen = run_folder or root / f"{name}-{run_fingerprint(config, dataset)[:8]}"
    return Experiment(name, config, dataset, default_index_folder(root, config, dataset), chosen)


def run_experiment(experiment: Experiment, indexing: Advance, answering: Advance) -> tuple[Summary, dict[str, Any]]:
    """Run what is missing, write rows, manifest, summary and report; returns the summary and the headline."""
    started = time.perf_counter()
    config = experiment.config
    ensure_index(config, experiment.dataset, experiment.index_folder, indexing)
    rows = run_benchmark(config, experiment.dataset, experiment.index_folder, experiment.run_folder, answering)
    summary = summarise(rows, seed=config.seed)
    figures = headline(summary) | {"lost": experiment.num_questions - len({row["question_id"] for row in rows})}
    manifest = make_manifest(
        experiment.name,
        run_fingerprint(config, experiment.dataset),
        config.model_dump(mode="json"),
        index=read_manifest(experiment.index_folder),
        seconds=round(time.perf_counter() - started, 1),
    )
    write_manifest(experiment.run_folder, manifest)
    (experiment.run_folder / SUMMARY).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    write_report(experiment.run_folder / REPORT, summary, manifest, rows)
    return summary, figures
