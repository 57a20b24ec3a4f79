"""The tables of a run, for the terminal, for markdown and for the HTML report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from corag_ray.evaluation.summary import Estimate, MethodSummary, Summary

MISSING = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Column:
    """One metric as a column; `lower_is_better` decides which cell is bold."""

    metric: str
    header: str
    digits: int
    lower_is_better: bool = False


COLUMNS = (
    Column("rouge_set.rougeL", "ROUGE-L (set)", 3),
    Column("rouge_generated.rougeL", "ROUGE-L (generated)", 3),
    Column("evidence_recall", "evidence recall", 3),
    Column("evidence_precision", "evidence precision", 3),
    Column("context_tokens", "context tokens", 0, lower_is_better=True),
    Column("pairs", "pairs", 0, lower_is_better=True),
    Column("latency_ms", "latency (ms)", 0, lower_is_better=True),
)


@dataclass(frozen=True, slots=True)
class SmallTable:
    """A few columns in a table of their own, below the main one; `note` tells in the caption what they are."""

    title: str
    columns: tuple[Column, ...]
    note: str


SHORT_ANSWERS = SmallTable(
    "Short answers",
    (Column("exact_match", "exact match", 3), Column("token_f1", "token F1", 3)),
    "Exact match and token F1 are against the set's answers, normalised as SQuAD does.",
)
ABSTENTION = SmallTable(
    "Abstention",
    (
        Column("abstained_unanswerable", "abstained (unanswerable)", 3),
        Column("abstained_answerable", "abstained (answerable)", 3, lower_is_better=True),
    ),
    "Abstained is the share of the questions that the set calls unanswerable or answerable on which the answer was the"
    " prompt's agreed words for none.",
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A mean and half of its interval as text; `half` is empty where there is no interval, or one without width."""

    mean: str
    half: str
    is_best: bool

    def __str__(self) -> str:
        """`0.471 ± 0.031`, or the mean alone."""
        return f"{self.mean} ± {self.half}" if self.half else self.mean


def table_cells(summary: Summary, columns: Sequence[Column] = COLUMNS) -> list[tuple[MethodSummary, list[Cell]]]:
    """For each method its cells, one a column; equal as printed, several are best."""
    best = [_best_mean(summary, column) for column in columns]
    lines = []
    for method in summary.methods:
        cells = []
        for column, best_mean in zip(columns, best, strict=True):
            estimate = method.estimates[column.metric]
            text = decimal(estimate.mean, column.digits)
            half = decimal(estimate.half_width, column.digits) if estimate.half_width else ""
            cells.append(Cell(text, half, not method.is_bound and text != MISSING and text == best_mean))
        lines.append((method, cells))
    return lines


def small_tables(summary: Summary) -> list[SmallTable]:
    """The tables below the main one: those of which something was measured.

    Short answers have none where the set's answers are long, which no answer matches word for word.
    """
    worth_a_look = [SHORT_ANSWERS, ABSTENTION] if summary.short_answers else [ABSTENTION]
    return [table for table in worth_a_look if any(_counts(summary, column) for column in table.columns)]


def shown_columns(summary: Summary) -> list[Column]:
    """The columns of all tables, the main one's first."""
    return [*COLUMNS, *(column for table in small_tables(summary) for column in table.columns)]


def summary_table(summary: Summary) -> Group:
    """The tables for the terminal: the best real method of a column in bold, floor and ceiling dimmed.

    Where methods below each other are too wide for the terminal, they stand side by side, and metrics below each other.
    """
    lines = [
        (method, [*map(_terminal_cell, cells), _over_budget(method), str(method.n)])
        for method, cells in table_cells(summary)
    ]
    tables: list[_FirstThatFits | str] = [
        _either_way([column.header for column in COLUMNS] + ["over budget", "n"], lines)
    ]
    for small in small_tables(summary):
        lines = [(method, list(map(_terminal_cell, cells))) for method, cells in table_cells(summary, small.columns)]
        tables += ["", _either_way([column.header for column in small.columns], lines)]
    return Group(*tables, Text(caption(summary), style="italic dim"))


def markdown_table(summary: Summary) -> str:
    """The same tables in markdown, the caption below them; floor and ceiling in italics."""
    rows = [
        (method, [*map(_markdown_cell, cells), str(method.over_budget), str(method.n)])
        for method, cells in table_cells(summary)
    ]
    lines = _markdown_lines([column.header for column in COLUMNS] + ["over budget", "n"], rows)
    for small in small_tables(summary):
        rows = [(method, list(map(_markdown_cell, cells))) for method, cells in table_cells(summary, small.columns)]
        lines += ["", *_markdown_lines([column.header for column in small.columns], rows)]
    return "\n".join([*lines, "", _markdown_text(caption(summary)), ""])


def caption(summary: Summary) -> str:
    """What the numbers are, how many questions are not in them, and what they cannot show."""
    notes = _no_reference(summary) + _coverable(summary) + "".join(f" {table.note}" for table in small_tables(summary))
    return (
        f"Means over {summary.rows - summary.failed} of {summary.rows} questions; {summary.failed} failed and enter no"
        f" mean.{_fewer_questions(summary)} ± is half of the 95 % bootstrap interval.{_pairs(summary)}"
        f"{_unread(summary)} ROUGE-L is F1 against the set's answers (set) or the same generator's answer from the gold"
        f" passages (generated).{notes} Bold: best of its column, floor and ceiling aside.{_order_blind(summary)}"
    )


def _pairs(summary: Summary) -> str:
    """The sentence that says how much reranking the run took, where anything was scored."""
    if summary.shared_pairs is None:
        return ""
    return (
        f" Of {summary.pairs:,} pairs, {summary.pairs_computed:,} were computed; {100 * summary.shared_pairs:.1f} %"
        " came from the memo or with another method's call."
    )


def _unread(summary: Summary) -> str:
    """A sentence for each thing that a reranker could not score, not read at once or not in full: how many, of whom."""
    counts = {
        "Pairs that could not be scored, and so not be chosen": [m.pairs_unscored for m in summary.methods],
        "Selections scored in several windows": [m.windowed_selections for m in summary.methods],
        "Questions of which the reranker read the beginning alone": [m.cut_questions for m in summary.methods],
    }
    sentences = []
    for what, numbers in counts.items():
        named = [f"{number:,} of {m.name}" for m, number in zip(summary.methods, numbers, strict=True) if number]
        sentences += [f" {what}: {', '.join(named)}."] if named else []
    return "".join(sentences)


def _no_reference(summary: Summary) -> str:
    """The sentence that says why a whole column is empty: the reference is an answer of the run's own."""
    if any(method.estimates["rouge_generated.rougeL"].n for method in summary.methods):
        return ""
    return " The latter is a dash: no method with `source: gold` answered."


def _coverable(summary: Summary) -> str:
    """The sentence that says why evidence recall cannot reach 1, where it cannot as far as is printed."""
    recall = decimal(summary.coverable_evidence, 3)
    if recall in (MISSING, decimal(1, 3)):
        return ""
    return f" With every chunk of the evidence's documents selected, evidence recall would be {recall}."


def _order_blind(summary: Summary) -> str:
    """A sentence for each reranker that is blind to order, with the methods that it scored for."""
    sentences = []
    for reranker in summary.order_blind:
        names = ", ".join(method.name for method in summary.methods if method.reranker == reranker)
        if names:
            sentences.append(
                f" {reranker} is blind to order: the figures of {names} say nothing about the order of chunks."
            )
    return "".join(sentences)


def _fewer_questions(summary: Summary) -> str:
    """The sentence that names the columns whose means are over fewer questions than `n`; a dash speaks for itself."""
    named = []
    for column in shown_columns(summary):
        counts = _counts(summary, column)
        if any(count < method.n for method, count in counts):
            least, most = min(count for _, count in counts), max(count for _, count in counts)
            named.append(f"{column.header} {least}" + (f" to {most}" if most > least else ""))
    return f" Fewer questions enter: {', '.join(named)}." if named else ""


def _counts(summary: Summary, column: Column) -> list[tuple[MethodSummary, int]]:
    """For each method of which the column was measured, over how many questions."""
    counts = [(method, method.estimates[column.metric].n) for method in summary.methods]
    return [(method, count) for method, count in counts if count]


def decimal(value: float | None, digits: int, signed: bool = False) -> str:
    """A number as printed everywhere in the reports: thousands grouped, a true minus sign, a dash for None."""
    if value is None:
        return MISSING
    text = f"{value:{'+' if signed else ''},.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def interval_text(estimate: Estimate, digits: int) -> str:
    """Mean and half interval in one string, as the slices show it."""
    text = decimal(estimate.mean, digits)
    return f"{text} ± {decimal(estimate.half_width, digits)}" if estimate.half_width else text


def _best_mean(summary: Summary, column: Column) -> str | None:
    means = [method.estimates[column.metric].mean for method in summary.methods if not method.is_bound]
    measured = [value for value in means if value is not None]
    if not measured:
        return None
    return decimal((min if column.lower_is_better else max)(measured), column.digits)


@dataclass(frozen=True, slots=True)
class _FirstThatFits:
    """The first of two tables where the terminal is wide enough for it, else the second."""

    wide: Table
    narrow: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(max_width=sys.maxsize)
        fits = Measurement.get(console, unbounded, self.wide).maximum <= options.max_width
        yield self.wide if fits else self.narrow


def _either_way(headers: Sequence[str], lines: Sequence[tuple[MethodSummary, Sequence[str]]]) -> _FirstThatFits:
    """Methods below each other, or side by side."""
    wide = _terminal_table("method", [header.replace(" ", "\n") for header in headers])
    for method, texts in lines:
        wide.add_row(escape(method.name), *texts, style="dim" if method.is_bound else None)
    narrow = _terminal_table("", [escape(method.name) for method, _ in lines])
    for header, *texts in zip(headers, *(texts for _, texts in lines), strict=True):
        narrow.add_row(header, *texts)
    for column, (method, _) in zip(narrow.columns[1:], lines, strict=True):
        column.style = "dim" if method.is_bound else ""
    return _FirstThatFits(wide, narrow)


def _terminal_table(corner: str, headers: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=0)
    table.add_column(corner, no_wrap=True, overflow="fold")
    for header in headers:
        # A narrow terminal folds a cell; it never shows a number without its last digits.
        table.add_column(header, justify="right", overflow="fold")
    return table


def _terminal_cell(cell: Cell) -> str:
    return f"[bold]{cell}[/bold]" if cell.is_best else str(cell)


def _over_budget(method: MethodSummary) -> str:
    return f"[red]{method.over_budget}[/red]" if method.over_budget else "0"


def _markdown_lines(headers: Sequence[str], rows: Sequence[tuple[MethodSummary, list[str]]]) -> list[str]:
    lines = [_markdown_line(["method", *headers]), _markdown_line(["---", *["---:"] * len(headers)])]
    for method, texts in rows:
        name = _markdown_text(method.name)
        lines.append(_markdown_line([f"*{name}*" if method.is_bound else name, *texts]))
    return lines


def _markdown_text(text: str) -> str:
    """A text that may hold names, the reader's own words: a bar or a star in it must not become table or emphasis."""
    return "".join(f"\\{sign}" if sign in "|*_`[]<\\" else sign for sign in text)


def _markdown_cell(cell: Cell) -> str:
    return f"**{cell}**" if cell.is_best else str(cell)


def _markdown_line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
