"""The picture of a comparison: score and recall against pairs, and recall against tokens, a row for each data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from corag_ray.reports.figures import OKABE_ITO
from jobs.search.contestants import OURS

_INK = "#1f2328"
_STYLES = ("o-", "s--", "^:")
"""Marker and line, which tell apart strategies of one colour."""
_PANELS = (("pairs", "score"), ("pairs", "recall"), ("tokens", "recall"))
"""What is drawn along and up."""


def draw_courses(of_sets: Mapping[str, Mapping[str, Mapping[str, Any]]], title: str, path: Path) -> None:
    """Write a PNG of `figures` by data set: a line a strategy, its points the limits of pairs, bars for the intervals.

    A strategy that asks for fewer pairs than the limit has its points where it stopped.
    """
    with mpl.rc_context({"axes.spines.right": False, "axes.spines.top": False, "font.size": 9}):
        figure = Figure(figsize=(13.0, 0.6 + 3.2 * len(of_sets)), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(of_sets), len(_PANELS), squeeze=False)
        for row, (name, by_strategy) in zip(panels, of_sets.items(), strict=True):
            for axes, (along, up) in zip(row, _PANELS, strict=True):
                _draw_panel(axes, by_strategy, along, up)
            row[0].set_title(name, loc="left")
        handles, names = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper", frameon=False)
        figure.suptitle(title)
        figure.savefig(path, dpi=130)


def _draw_panel(axes: Axes, by_strategy: Mapping[str, Mapping[str, Any]], along: str, up: str) -> None:
    for number, (strategy, by_limit) in enumerate(by_strategy.items()):
        cells = [cell for cell in by_limit.values() if cell[up]["mean"] is not None]
        axes.errorbar(
            [cell["pairs"] if along == "pairs" else cell[along]["mean"] for cell in cells],
            [cell[up]["mean"] for cell in cells],
            yerr=[[_end(cell[up], "low") for cell in cells], [_end(cell[up], "high") for cell in cells]],
            fmt=_STYLES[0 if strategy == OURS else number // len(OKABE_ITO) % len(_STYLES)],
            color=_INK if strategy == OURS else OKABE_ITO[number % len(OKABE_ITO)],
            markersize=4,
            linewidth=2.0 if strategy == OURS else 1.2,
            elinewidth=0.6,
            label=strategy,
        )
    axes.set_xlabel(f"{along}, mean a question")
    axes.set_ylabel({"score": "score", "recall": "evidence recall"}[up])


def _end(estimate: Mapping[str, float | None], end: str) -> float:
    """How far an end of the interval lies from the mean; 0 without an interval."""
    middle, value = estimate["mean"], estimate[end]
    return 0.0 if middle is None or value is None else abs(value - middle)
