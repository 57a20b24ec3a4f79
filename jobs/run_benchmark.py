"""`python -m jobs.run_benchmark jobs/experiments/hotpotqa.yaml --limit 80`: the same as `corag bench`."""

from __future__ import annotations

import typer

from corag_ray.cli import bench, reporting_errors

if __name__ == "__main__":
    with reporting_errors():
        typer.run(bench)
