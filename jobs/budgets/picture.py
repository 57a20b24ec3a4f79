"""The picture of a comparison: recall of evidence against tokens, a panel for each data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from corag_ray.reports.figures import OKABE_ITO
from jobs.budgets.contestants import NAIVE, WAYS

_INK = "#1f2328"
_LINES = dict(zip(WAYS, ("-", "--", ":"), strict=True))
"""By what a name has behind the reranker's: all of one reranker have its colour."""


def draw_curves(figures: Mapping[str, Mapping[str, Mapping[str, Any]]], path: Path) -> None:
    """Write a PNG of figures by data set, method and budget; searches and NaiveRAG with their 95 % intervals."""
    with mpl.rc_context({"axes.spines.right": False, "axes.spines.top": False, "font.size": 9}):
        figure = Figure(figsize=(3.0 + 4.2 * len(figures), 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(figures), sharey=True, squeeze=False)[0]
        for axes, (name, methods) in zip(panels, figures.items(), strict=True):
            _draw_panel(axes, methods)
            axes.set_title(name)
            axes.set_xlabel("tokens of the selection, mean a question")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(ScalarFormatter())
        panels[0].set_ylabel("evidence recall")
        lines = {name: line for axes in panels for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        names = dict.fromkeys(name for methods in figures.values() for name in methods)
        shown = [name for name in names if name in lines]
        figure.legend([lines[name] for name in shown], shown, loc="outside right upper", frameon=False)
        figure.savefig(path, dpi=150)


def _draw_panel(axes: Axes, methods: Mapping[str, Mapping[str, Any]]) -> None:
    colours: dict[str, str] = {NAIVE: _INK}
    for name, by_budget in methods.items():
        reranker, way = _reranker_and_way(name)
        colour = colours.setdefault(reranker, OKABE_ITO[(len(colours) - 1) % len(OKABE_ITO)])
        # Where nothing fits the budget nothing is selected: no point on an axis without a zero.
        points = [cell for cell in by_budget.values() if cell["recall"]["mean"] is not None and cell["tokens"]["mean"]]
        across = [cell["tokens"]["mean"] for cell in points]
        up = [cell["recall"]["mean"] for cell in points]
        if way:
            axes.plot(across, up, _LINES[way], color=colour, linewidth=1, alpha=0.7, label=name)
        else:
            axes.errorbar(
                across,
                up,
                xerr=_errors(points, "tokens"),
                yerr=_errors(points, "recall"),
                fmt="o-",
                color=colour,
                markersize=4,
                linewidth=1.5,
                elinewidth=0.7,
                label=name,
            )


def _reranker_and_way(name: str) -> tuple[str, str]:
    way = next((way for way in WAYS if way and name.endswith(way)), "")
    return name.removesuffix(way), way


def _errors(points: list[Any], figure: str) -> list[list[float]]:
    """[2, points] distances from the mean to the interval's ends, none where there is no interval."""
    told = [cell[figure] for cell in points]
    return [
        [0.0 if one["low"] is None else max(0.0, one["mean"] - one["low"]) for one in told],
        [0.0 if one["high"] is None else max(0.0, one["high"] - one["mean"]) for one in told],
    ]
