"""What Ray costs: the benchmark's search half with Ray Data against the same pipeline in one process.

`python -m jobs.bench_overhead --data hotpotqa-sample --limit 200`. Both sides run in this one command over the same
finished index, without generation, each from loading its models to its last stored row.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from corag_ray.batch.benchmark import group_rows, groups_of, open_run, run_benchmark
from corag_ray.batch.estimate import duration_text
from corag_ray.batch.index_folder import ensure_index, open_corpus
from corag_ray.build import build_selector
from corag_ray.cli import reporting_errors
from corag_ray.config import Config
from corag_ray.config_file import load_config
from corag_ray.datasets.assemble import Dataset
from corag_ray.evaluation.row_log import Row, SelectedChunk
from corag_ray.identity import index_spec, run_fingerprint
from corag_ray.prepare import prepare_weights
from corag_ray.settling import settle

ALLOWED_RATIO, ALLOWED_SECONDS = 1.15, 30.0


def main(
    data: Annotated[str, typer.Option(help="Data set.")] = "sample",
    limit: Annotated[int, typer.Option(min=1, help="Questions.")] = 200,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
) -> None:
    """Time both sides and print their ratio."""
    config = settle(load_config(None, {"dataset": data, "limit": limit, "generation": {"enabled": False}}))
    prepare_weights(config)
    dataset, index_folder = open_corpus(root, config)
    questions = len(dataset.questions[:limit])
    print(f"{questions} questions, two sides: about {duration_text(40 + 0.6 * questions)} once the index is there.")
    ensure_index(config, dataset, index_folder)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        warm = config.model_copy(update={"limit": config.group_size})
        _in_one_process(warm, dataset, index_folder, folder / "warm")  # untimed: files into the page cache, for both
        plain, plain_rows = _timed(lambda: _in_one_process(config, dataset, index_folder, folder / "plain"))
        with_ray, ray_rows = _timed(lambda: run_benchmark(config, dataset, index_folder, folder / "ray"))
    allowed = ALLOWED_RATIO * plain + ALLOWED_SECONDS
    figures = {
        "questions": questions,
        "plain_seconds": round(plain, 1),
        "ray_seconds": round(with_ray, 1),
        "ratio": round(with_ray / plain, 3),
        "allowed_seconds": round(allowed, 1),
        "holds": with_ray <= allowed,
        "same_selections": _selections(plain_rows) == _selections(ray_rows),
    }
    print(json.dumps(figures))


def _in_one_process(config: Config, dataset: Dataset, index_folder: Path, run_folder: Path) -> list[Row]:
    """The same groups, rows and row log, without Ray."""
    fingerprint = run_fingerprint(config, dataset)
    selector = build_selector(config, index_folder, index_spec(config, dataset))
    with open_run(config, dataset, run_folder) as writer:
        for group in groups_of(config, dataset):
            plans = selector.select(group.questions)
            writer.append(group_rows(config, fingerprint, group, plans, [{} for _ in plans]))
        return writer.rows


def _timed(run: Callable[[], list[Row]]) -> tuple[float, list[Row]]:
    started = time.perf_counter()
    rows = run()
    return time.perf_counter() - started, rows


def _selections(rows: Sequence[Row]) -> list[dict[str, list[SelectedChunk]]]:
    return [{name: method["selection"] for name, method in row["methods"].items()} for row in rows]


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
