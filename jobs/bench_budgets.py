"""Evidence recall against tokens, as a curve: `python -m jobs.bench_budgets --out runs/budgets`.

On questions of documents that `jobs.train_combination_reranker` and `jobs.train_reranker` never train on, with the
candidates of the whole corpus, selections alone, nothing is generated. NaiveRAG fills the budget by first-stage rank.
Each reranker is searched with a preset of the policy tree, by default `report`, until a limit of pairs is reached; two
more rows ask for nearly the same pairs: greedy, and `ranked`, which fills the budget by its scores of single chunks.

`--out` keeps a row for each question, method and budget (`rows.jsonl`), by a fingerprint of what its numbers depend on:
started again, the job computes only what is missing, for other limits and budgets too. It also takes the figures
(`figures.json`, numbers only) and the picture (`curves.png`). The last line is the same JSON object:

    settings            questions a set, candidates, preset, seed, and the limit of pairs of every method
    questions           by data set: how many were asked, and how many its test part has
    figures             by data set, and for several also `all` together, by method and budget in tokens:
        questions, failed       how many were asked, and for how many nothing could be scored (left out of the means)
        recall, tokens, precision
                                {mean, low, high}: the mean and the ends of its 95 % interval, null where there is none;
                                tokens are the selection's cost, precision that of selections that hold a chunk
        pairs, unscored         mean of a question, and how many in all could not be scored
        above_naive             {mean, low, high} of recall less NaiveRAG's for the same questions and budget
        above_at_equal_tokens   {mean, low, high} of recall less NaiveRAG's curve at as many tokens
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from corag_ray.batch.estimate import duration_text
from corag_ray.batch.folder_lock import locked
from corag_ray.cli import reporting_errors
from corag_ray.config import Config
from corag_ray.config_file import load_config
from corag_ray.errors import ConfigError, DataError
from corag_ray.indexing.chunking import COST_NUMBER
from corag_ray.indexing.durable import write_atomically
from corag_ray.models.combination_weights import COMBINATION, COMBINATION_HEAD
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute as compute_of
from corag_ray.settling import settle
from corag_ray.types import Question
from jobs.bench_combination import check_split, read_card
from jobs.bench_rerankers import learned_from, told_apart
from jobs.budgets.contestants import NAIVE, Planned, contestants_of, plan_of
from jobs.budgets.curves import figures
from jobs.budgets.held_out import held_out
from jobs.budgets.picture import draw_curves
from jobs.budgets.row_log import Row
from jobs.budgets.rows import rows_of
from jobs.combination.drawing import OpenSet, open_sets
from jobs.row_log import RowLog

ALWAYS = ("late_interaction", COMBINATION)
PAIRS_A_SECOND = {"late_interaction": 20_000.0, COMBINATION: 2_000.0, "query_likelihood": 4.0}
PAIRS_A_SECOND_OF_OTHERS = 20.0
"""Of a cross-encoder of MiniLM's size; both for the estimate of time."""
ALL, ROWS, FIGURES, PICTURE = "all", "rows.jsonl", "figures.json", "curves.png"


def main(
    data: Annotated[str, typer.Option(help="Data sets, parted by commas.")] = (
        "hotpotqa-sample,2wikimultihopqa-sample,musique-sample"
    ),
    reranker: Annotated[list[str] | None, typer.Option(help="One more of the package; repeatable.")] = None,
    cross_encoder: Annotated[list[Path] | None, typer.Option(help="Folder of a cross-encoder; repeatable.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Questions a set.")] = 60,
    limit_slow: Annotated[int, typer.Option(min=1, help="Questions a set for slow rerankers.")] = 15,
    budgets: Annotated[str, typer.Option(help="In tokens, parted by commas.")] = "128,256,512,1024",
    budgets_slow: Annotated[str, typer.Option(help="Of slow rerankers.")] = "256,512",
    candidates: Annotated[int, typer.Option(min=1, max=COST_NUMBER, help="Chunks to choose from.")] = 60,
    preset: Annotated[str, typer.Option(help="Of the policy tree.")] = "report",
    seed: Annotated[int, typer.Option(min=0, help="Of the questions' order and of the intervals.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="Folder of rows, figures and picture.")] = Path("runs/budgets"),
) -> None:
    """Select for every question by every method at every budget, and print tables and figures."""
    started = time.perf_counter()
    folders, names = told_apart(cross_encoder or []), list(dict.fromkeys(data.split(",")))
    own = {folder.name: {"folder": str(folder)} for folder in folders}
    settings = {"dtype": "float32", "plan": {"threads": threads}, "cross_encoders": own}
    config = settle(load_config(None, settings | {"retrieval": {"num_candidates": candidates}}))
    compute_of(config).apply()  # before the rerankers' modules are imported
    contestants = contestants_of(config, list(dict.fromkeys([*ALWAYS, *(reranker or []), *own])), preset)
    prepare_weights(config.model_copy(update={"methods": {one.name: one.method for one in contestants}}))
    planned = plan_of(contestants, whole_numbers(budgets), whole_numbers(budgets_slow))
    seconds = len(names) * seconds_a_set(planned, limit, min(limit, limit_slow))
    print(
        f"{len(names)} sets, {len(contestants)} methods: about {duration_text(seconds)}, "
        f"indexes and what {out} already holds apart.",
        flush=True,
    )
    rows: dict[str, list[Row]] = {}
    there: dict[str, int] = {}
    with locked(out):
        log = RowLog(out / ROWS, Row)
        for name, opened, questions in asked_sets(names, config, folders, root, seed):
            there[name] = len(questions)
            rows[name] = rows_of(opened, questions[:limit], planned, limit_slow, log)
        report: dict[str, Any] = {
            "settings": {
                "limit": limit,
                "limit_slow": limit_slow,
                "candidates": candidates,
                "preset": preset,
                "seed": seed,
                "pair_limits": {one.name: one.pair_limit for one in contestants},
            },
            "questions": {name: {"asked": min(limit, most), "test_part": most} for name, most in there.items()},
            "figures": figures_of_sets(rows, seed),
        }
        write_atomically(out / FIGURES, json.dumps(report, indent=2) + "\n")
        draw_curves({name: report["figures"][name] for name in names}, out / PICTURE)
    for name, of_methods in report["figures"].items():
        Console(width=170).print(table_of(name, of_methods))
    print(f"Rows, figures and picture are in {out}: {duration_text(time.perf_counter() - started)}.", flush=True)
    print(json.dumps(report))


def asked_sets(
    names: Sequence[str], config: Config, folders: Sequence[Path], root: Path, seed: int
) -> Iterator[tuple[str, OpenSet, list[Question]]]:
    """The data sets with all questions of their test parts, in a drawn order.

    Raises:
        DataError: the head's own data sets are parted otherwise than at its training, or a set has no such question.
    """
    card = read_card(COMBINATION_HEAD)
    of_head, learned = open_sets([entry["name"] for entry in card["data"]], config, root)
    check_split(card, learned)
    for name in names:
        sets, parts = (of_head, learned) if name in of_head else open_sets([name], config, root)
        of_passages = Path(name).name in learned_from(folders)
        questions = held_out(sets[name].questions, parts, learned, of_passages=of_passages, seed=seed)
        if not questions:
            raise DataError(f"{name}: no question with evidence is of the test part.")
        yield name, sets[name], questions


def figures_of_sets(rows: dict[str, list[Row]], seed: int) -> dict[str, dict[str, dict[str, Any]]]:
    """By data set; where there are several, of all their questions together as well."""
    together = {ALL: [row for of_set in rows.values() for row in of_set]} if len(rows) > 1 else {}
    return {name: figures(of_set, seed) for name, of_set in {**rows, **together}.items()}


def whole_numbers(text: str, what: str = "budgets") -> list[int]:
    """Budgets or the like, parted by commas, each once, by size.

    Raises:
        ConfigError: one is no whole number of at least 1.
    """
    parts = [part.strip() for part in text.split(",")]
    if any(not part.isdecimal() or int(part) < 1 for part in parts):
        raise ConfigError(f"{what} are whole numbers of at least 1, parted by commas, not '{text}'.")
    return sorted({int(part) for part in parts})


def seconds_a_set(planned: Planned, limit: int, limit_slow: int) -> float:
    """What searches take that use up their pairs; greedy and `ranked` ask for nearly the same ones."""
    pairs = {
        (one.reranker, budget): one.pair_limit * (limit_slow if one.is_slow else limit)
        for one, budget in planned
        if one.reranker != NAIVE
    }
    seconds = sum(n / PAIRS_A_SECOND.get(name, PAIRS_A_SECOND_OF_OTHERS) for (name, _), n in pairs.items())
    return 10 + 0.2 * limit + seconds


def table_of(name: str, of_methods: dict[str, dict[str, dict[str, Any]]]) -> Table:
    """One row a budget and method, but for the budgets of NaiveRAG's curve alone; ± is half of an interval."""
    table = Table("budget", title=f"{name}: evidence recall, 95 % intervals")
    measured = ("recall", "tokens", "precision", "pairs", "above NaiveRAG", "at equal tokens")
    for heading in ("method", "questions", *measured):
        table.add_column(heading, no_wrap=True)
    budgets = sorted({int(budget) for method, cells in of_methods.items() if method != NAIVE for budget in cells})
    for budget in budgets:
        for method, cells in of_methods.items():
            if cell := cells.get(str(budget)):
                asked = f"{cell['questions']}" + (f" ({cell['failed']} failed)" if cell["failed"] else "")
                beside = (_half(cell["tokens"], ".0f"), _half(cell["precision"], ".3f"), f"{cell['pairs']:,.0f}")
                above = (_ends(cell[key], "+.3f") for key in ("above_naive", "above_at_equal_tokens"))
                table.add_row(str(budget), method, asked, _ends(cell["recall"], ".3f"), *beside, *above)
        table.add_section()
    return table


def _ends(estimate: dict[str, float | None] | None, form: str) -> str:
    """The mean with the ends of its interval."""
    if estimate is None or estimate["mean"] is None:
        return "–"
    spread = "" if estimate["low"] is None else f" {estimate['low']:{form}} to {estimate['high']:{form}}"
    return f"{estimate['mean']:{form}}{spread}"


def _half(estimate: dict[str, float | None], form: str) -> str:
    """The mean with half the width of its interval."""
    mean, low, high = estimate["mean"], estimate["low"], estimate["high"]
    if mean is None:
        return "–"
    return f"{mean:{form}}" + ("" if low is None or high is None else f" ± {(high - low) / 2:{form}}")


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
