"""Puts finished runs into `results/` and the README: `python -m jobs.publish_results runs/sample-1a2b3c4d ..`.

Only numbers are copied: the summary, the table and the manifest, never questions, answers or texts.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from corag_ray.batch.experiment import SUMMARY, TABLE
from corag_ray.cli import reporting_errors
from corag_ray.errors import DataError
from corag_ray.evaluation.manifest import MANIFEST

RESULTS, README = Path("results"), Path("README.md")
BEGIN, END = "<!-- results: made by jobs.publish_results -->", "<!-- end of results -->"


def main(runs: Annotated[list[Path], typer.Argument(help="Run folders.")]) -> None:
    """Copy each run's figures to `results/NAME` and rewrite the README's results."""
    for run in runs:
        missing = [name for name in (SUMMARY, TABLE, MANIFEST) if not (run / name).is_file()]
        if missing:
            raise DataError(f"{run} is no finished run: it has no {missing[0]}.")
        target = RESULTS / json.loads((run / MANIFEST).read_text("utf-8"))["name"]
        target.mkdir(parents=True, exist_ok=True)
        for name in (SUMMARY, TABLE, MANIFEST):
            shutil.copy(run / name, target / name)
    text = README.read_text("utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n{results_text(RESULTS)}{END}{after}", encoding="utf-8")
    print(json.dumps({"published": [str(run) for run in runs]}))


def results_text(results: Path) -> str:
    """The README's results: a heading, the circumstances and the table of every published run."""
    parts = []
    for folder in sorted((path for path in results.iterdir() if path.is_dir()), reverse=True):
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        summary = json.loads((folder / SUMMARY).read_text("utf-8"))
        config, sessions = manifest["config"], manifest["sessions"]
        commits = ", ".join(dict.fromkeys(f"`{session['commit']}`" for session in sessions))
        command = next(session["command"] for session in sessions)
        parts.append(
            f"\n**{manifest['name']}**: {summary['rows']} questions, budget {config['budget_tokens']} tokens, "
            f"{config['generation']['max_new_tokens']} new tokens, {config['retrieval']['num_candidates']} candidates. "
            f"`{command}` at commit {commits}, on {sessions[0]['machine']['processor']} "
            f"({sessions[0]['machine']['cpus']} cores, {config['dtype']}).\n\n"
            + (folder / TABLE).read_text("utf-8").strip()
            + "\n\n"
        )
    return "".join(parts)


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
