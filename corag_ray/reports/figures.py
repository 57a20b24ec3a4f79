"""Figures from a run's summary: quality against context tokens, and latency by stage."""

from __future__ import annotations

import functools
import io
import logging
import re
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from corag_ray.evaluation.summary import Estimate, MethodSummary, Summary
from corag_ray.reports.labels import spread
from corag_ray.reports.table import COLUMNS, decimal

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours that stay apart for colour-blind readers; the palette's yellow is too pale for white paper."""

_MARKERS = ("o", "s", "D", "^", "v")  # one fewer than the colours: colour and mark together repeat after thirty
_GREY = "#808080"  # readable on white and on black
_INK = "#1f2328"  # turned into the page's own text colour by `svg_text`
_FALLBACKS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "Arial Unicode MS",
)
"""Fonts, by the systems that have them, for what matplotlib's own has not: Chinese names of methods above all."""
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "corag_ray",
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
}

_log = logging.getLogger(__name__)


def quality_figure(summary: Summary) -> Figure:
    """ROUGE-L (set) and evidence recall against context tokens: one point a method, bars for the 95 % intervals."""
    with mpl.rc_context(_style()):
        figure = _figure(height_inches=6.4)
        panels = figure.subplots(2, 1, sharex=True)
        _quality_panel(panels[0], summary, "rouge_set.rougeL")
        _quality_panel(panels[1], summary, "evidence_recall")
        panels[1].set_xlabel("context tokens, mean a question")
        return figure


def latency_figure(summary: Summary) -> Figure:
    """Mean latency by stage, one stacked bar a method, the total at its end."""
    with mpl.rc_context(_style()):
        methods = summary.methods[::-1]  # bars grow upwards: the first method belongs on top
        figure = _figure(height_inches=1.2 + 0.36 * max(1, len(methods)))
        axes = figure.subplots()
        stages = list(dict.fromkeys(stage for method in summary.methods for stage in method.stage_ms))
        names = [method.name for method in methods]
        left = [0.0] * len(methods)
        for number, stage in enumerate(stages):
            widths = [method.stage_ms.get(stage, 0.0) for method in methods]
            colour = OKABE_ITO[number % len(OKABE_ITO)]
            axes.barh(range(len(methods)), widths, 0.62, left=left, label=stage, color=colour)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        for position, total in enumerate(left):
            axes.annotate(
                decimal(total, 0), (total, position), (5, 0), textcoords="offset points", va="center", fontsize=9
            )
        axes.set_yticks(range(len(methods)), names)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.margins(x=0.1)
        axes.set_xlabel("milliseconds, mean a question")
        if stages:
            figure.legend(loc="outside upper left", ncols=len(stages), frameon=False, handlelength=1, handleheight=1)
        return figure


def svg_text(figure: Figure, prefix: str) -> str:
    """The figure as an inline SVG element: real text in the page's own font and colour, element ids behind `prefix`.

    So the reader's browser draws the characters; the fonts here tell how much room they take.
    """
    stream = io.StringIO()
    with mpl.rc_context(_style()), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    for one in told:
        if str(one.message).startswith("Glyph "):  # matplotlib's, one a character and drawing
            _warn_of_missing_glyphs()
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = re.sub(r"font: ([\d.]+px) [^;\"]+", r"font-size: \1", svg)  # as older matplotlibs write it
    svg = re.sub(r" font-family: [^;\"]+;?", "", svg)
    # Two figures on one page use the same ids (`axes_1`), and a reference would find the wrong one.
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)


def _style() -> dict[Any, Any]:
    """With the fallbacks among the fonts that are there: matplotlib complains of every other."""
    present = set(font_manager.fontManager.get_font_names())
    return _STYLE | {"font.family": ["sans-serif", *(name for name in _FALLBACKS if name in present)]}


@functools.cache
def _warn_of_missing_glyphs() -> None:
    """Once a process: a name may stand in every figure."""
    _log.warning(
        "no font here has all characters of the methods' names, so labels in figures may overlap: install one of %s",
        ", ".join(_FALLBACKS[:4]),
    )


def _figure(height_inches: float) -> Figure:
    """A figure outside pyplot, which would keep it alive and might open a window."""
    figure = Figure(figsize=(7.0, height_inches), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _quality_panel(axes: Axes, summary: Summary, metric: str) -> None:
    axes.set_ylabel(next(column.header for column in COLUMNS if column.metric == metric))
    points: list[tuple[float, float, str, str]] = []
    for number, method in enumerate(summary.methods):
        tokens, value = method.estimates["context_tokens"], method.estimates[metric]
        if tokens.mean is not None and value.mean is not None:
            colour = _GREY if method.is_bound else OKABE_ITO[number % len(OKABE_ITO)]
            _point(axes, method, tokens, value, colour, _MARKERS[number % len(_MARKERS)])
            points.append((tokens.mean, value.mean, method.name, colour))
    if not points:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center")
    _label_points(axes, points)


def _point(axes: Axes, method: MethodSummary, x: Estimate, y: Estimate, colour: str, marker: str) -> None:
    axes.errorbar(
        [x.mean or 0.0],
        [y.mean or 0.0],
        xerr=_error(x),
        yerr=_error(y),
        fmt=marker,
        color=colour,
        markerfacecolor="none" if method.is_bound else colour,
        markersize=7,
        elinewidth=1,
    )


def _error(estimate: Estimate) -> list[list[float]] | None:
    """[2, 1] distances from the mean to the interval's ends, the shape that matplotlib asks for."""
    if estimate.mean is None or estimate.low is None or estimate.high is None:
        return None
    return [[max(0.0, estimate.mean - estimate.low)], [max(0.0, estimate.high - estimate.mean)]]


def _label_points(axes: Axes, points: Sequence[tuple[float, float, str, str]]) -> None:
    """Names in a column to the right, spread so that none covers another, each with a thin line to its point."""
    low, high = axes.get_ylim()
    heights = [(y - low) / (high - low) for _, y, _, _ in points]
    for (x, y, name, colour), height in zip(points, spread(heights, gap=0.085), strict=True):
        axes.annotate(
            name,
            xy=(x, y),
            xytext=(1.03, height),
            textcoords=axes.transAxes,
            va="center",
            fontsize=9,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "alpha": 0.6, "shrinkB": 5},
        )
    axes.set_ylim(low, high)
