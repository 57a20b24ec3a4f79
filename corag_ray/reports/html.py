"""One self-contained HTML page of a run: tables, figures, examples, failures and the manifest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from corag_ray.evaluation.intervals import PairedDifference
from corag_ray.evaluation.row_log import Row
from corag_ray.evaluation.summarise import DIFFERENCE_METRICS, SLICE_METRICS, metric_value
from corag_ray.evaluation.summary import MethodSummary, Summary
from corag_ray.reports.figures import latency_figure, quality_figure, svg_text
from corag_ray.reports.pages import rendered
from corag_ray.reports.table import (
    COLUMNS,
    MISSING,
    Column,
    caption,
    decimal,
    shown_columns,
    small_tables,
    table_cells,
)

NUM_EXAMPLES = 10
_SLICES = [column for column in COLUMNS if column.metric in SLICE_METRICS]


def write_report(path: Path, summary: Summary, manifest: Mapping[str, object], rows: Sequence[Row]) -> None:
    """Write the page: no script, no font and no image from anywhere, readable without a network.

    Args:
        path: The HTML file; its folder is made.
        summary: `summarise(rows)`.
        manifest: What the run was made with (configuration, versions, commit, fingerprint); `name` becomes the title.
        rows: The run's rows, for the examples, the notes and the failures.
    """
    page = rendered(
        "report.html.j2",
        title=str(manifest.get("name", "CORAG run")),
        summary=summary,
        caption=caption(summary),
        columns=COLUMNS,
        lines=table_cells(summary),
        small_tables=[(table, table_cells(summary, table.columns)) for table in small_tables(summary)],
        difference_headers=[column.header for column in _difference_columns(summary)],
        slice_columns=_SLICES,
        differences=_difference_lines(summary),
        quality_svg=Markup(svg_text(quality_figure(summary), "quality")),  # matplotlib escapes the names in it
        latency_svg=Markup(svg_text(latency_figure(summary), "latency")),
        stages=list(dict.fromkeys(stage for method in summary.methods for stage in method.stage_ms)),
        slice_groups=_slice_groups(summary),
        examples=[row for row in rows if row["error"] is None][:NUM_EXAMPLES],
        failures=[row for row in rows if row["error"] is not None],
        notes=_notes(rows),
        manifest=_manifest_lines(manifest),
        latency_of=lambda row, name: metric_value(row, name, "latency_ms"),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _difference_columns(summary: Summary) -> list[Column]:
    return [column for column in shown_columns(summary) if column.metric in DIFFERENCE_METRICS]


def _difference_lines(summary: Summary) -> list[tuple[MethodSummary, list[tuple[str, str, bool]]]]:
    """By method, a cell a metric: the difference, its interval, and whether the interval leaves out zero."""
    columns = _difference_columns(summary)
    return [
        (method, [_difference_cell(summary.differences[method.name][c.metric], c.digits) for c in columns])
        for method in summary.methods
        if method.name in summary.differences
    ]


def _difference_cell(difference: PairedDifference | None, digits: int) -> tuple[str, str, bool]:
    if difference is None:
        return MISSING, "", False
    text = decimal(difference.mean_difference, digits, signed=True)
    if difference.low is None or difference.high is None:
        return text, "", False
    interval = f"{decimal(difference.low, digits, signed=True)} to {decimal(difference.high, digits, signed=True)}"
    return text, f"{interval}, p {_p_text(difference.p_value)}", difference.low > 0 or difference.high < 0


def _p_text(p_value: float) -> str:
    return "< 0.001" if p_value < 0.001 else f"= {p_value:.3f}"


def _slice_groups(summary: Summary) -> list[tuple[str, list[Any]]]:
    """The slices by what they cut, without the cuts that leave one piece."""
    groups: dict[str, list[Any]] = {}
    for part in summary.slices:
        groups.setdefault(part.by, []).append(part)
    return [(by, parts) for by, parts in groups.items() if len(parts) > 1]


def _notes(rows: Sequence[Row]) -> list[tuple[str, str, int]]:
    """(method, note, questions), most frequent first: what was cut is counted and shown."""
    counts = Counter(
        (name, note) for row in rows for name, result in row["methods"].items() for note in set(result["notes"])
    )
    return [(name, note, count) for (name, note), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _manifest_lines(manifest: Mapping[str, object]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Sections of (key, value): plain entries first under no heading, then a section for each nested mapping."""
    plain = [(str(key), _plain(value)) for key, value in manifest.items() if not isinstance(value, Mapping)]
    nested = [(str(key), _flatten(value)) for key, value in manifest.items() if isinstance(value, Mapping)]
    return [("", plain), *nested]


def _flatten(value: Mapping[Any, object], prefix: str = "") -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        lines += _flatten(item, f"{name}.") if isinstance(item, Mapping) and item else [(name, _plain(item))]
    return lines


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
