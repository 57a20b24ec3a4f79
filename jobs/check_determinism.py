"""Proves on real data that numbers do not depend on luck: `python -m jobs.check_determinism --data sample --limit 50`.

In deterministic mode, (1) a run that is killed half-way and started again stores the same bytes as an uninterrupted
one, but for times, and (2) questions asked one by one get the same selections as in the batch job.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
import yaml

from corag_ray.batch.estimate import duration_text
from corag_ray.batch.index_folder import open_corpus
from corag_ray.batch.row_writer import ROWS
from corag_ray.build import build_selector
from corag_ray.cli import reporting_errors
from corag_ray.config_file import load_config
from corag_ray.errors import CoragError
from corag_ray.evaluation.row_log import Row, read_rows
from corag_ray.identity import index_spec
from corag_ray.settling import settle

GROUP_SIZE = 4


def main(
    data: Annotated[str, typer.Option(help="Data set.")] = "sample",
    limit: Annotated[int, typer.Option(min=1, help="Questions.")] = 50,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens an answer: few, since the answers need only be equal.")
    ] = 4,
    budget: Annotated[int, typer.Option(min=1, help="Budget in tokens.")] = 256,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
) -> None:
    """Run the benchmark twice, once killed, compare the rows, and ask every question alone."""
    settings = {
        "dataset": data,
        "deterministic": True,
        "budget_tokens": budget,
        "group_size": GROUP_SIZE,
        "generation": {"max_new_tokens": max_new_tokens},
    }
    config = settle(load_config(None, settings))
    dataset, folder = open_corpus(root, config)
    limit = min(limit, len(dataset.questions))
    print(f"{limit} questions, three times: about {duration_text(60 + 6 * limit)} once the index is there.", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "check.yaml"
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        command = [sys.executable, "-m", "corag_ray.cli", "bench", str(file), f"--limit={limit}", f"--root={root}"]
        whole, killed = Path(scratch) / "whole", Path(scratch) / "killed"
        _run([*command, f"--out={whole}"])
        rows_at_kill = _kill_half_way([*command, f"--out={killed}"], killed / ROWS, limit)
        _run([*command, f"--out={killed}"])
        rows, resumed = read_rows(whole / ROWS), read_rows(killed / ROWS)

    selector = build_selector(config, folder, index_spec(config, dataset))
    differ = 0
    for row, question in zip(rows, dataset.questions, strict=False):
        [choices] = selector.select([question])
        alone = {name: [(c.doc_id, c.start, c.end) for c in m.selection] for name, m in choices.methods.items()}
        stored = {
            name: [(c["doc_id"], c["start"], c["end"]) for c in m["selection"]] for name, m in row["methods"].items()
        }
        differ += alone != stored
    figures = {
        "questions": len(rows),
        "rows_at_kill": rows_at_kill,
        "each_id_once": len({row["question_id"] for row in resumed}) == len(resumed) == len(rows),
        "resumed_equals_uninterrupted": [_timeless(r) for r in resumed] == [_timeless(r) for r in rows],
        "selections_that_differ_when_asked_alone": differ,
    }
    print(json.dumps(figures))


def _run(command: list[str]) -> None:
    if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode != 0:
        raise CoragError(f"the benchmark failed (its message is above): {' '.join(command)}.")


def _kill_half_way(command: list[str], log: Path, limit: int) -> int:
    """Start the command, kill it and its children when half of the rows are stored; returns the rows at that moment."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    rows = 0
    while rows < limit // 2 and process.poll() is None:
        time.sleep(0.05)
        rows = log.read_bytes().count(b"\n") if log.exists() else 0
    if process.poll() is not None:
        raise CoragError(f"the benchmark ended before it could be killed, with exit status {process.returncode}.")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return rows


def _timeless(row: Row) -> str:
    """The row as stored, without its times and what a memo saved: both depend on what was asked before."""
    methods = {
        name: {k: v for k, v in method.items() if k not in ("latency_ms", "pairs_computed")}
        for name, method in row["methods"].items()
    }
    return json.dumps({**row, "methods": methods}, ensure_ascii=False)


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
